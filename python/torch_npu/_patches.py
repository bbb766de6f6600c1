# SPDX-License-Identifier: Apache-2.0
"""The places where PyTorch's Python side does not know PrivateUse1 yet.

Each patch touches npu tensors only; for any other it calls what was there.
"""

import functools
import io

import torch

from torch_npu import _cast_weight, _compile, _device_interface, _lightning
from torch_npu._on_import import when_imported


def apply() -> None:
    _allow_uninitialized_parameters()
    _patch_dlpack()
    _patch_forking_pickler()
    _patch_deepcopy()
    _name_byte_mask_dropout()
    _name_profiler_activity()
    _profile_without_device()
    _compile.give_inductor_cpu_twins()
    when_imported(["torch._inductor.compile_fx"], _compile.refuse_ahead_of_time)
    when_imported(["torch._dynamo.device_interface"], _device_interface.register)
    when_imported(["torch._dynamo.trace_rules"], _skip_random_state)
    when_imported(["torch._dynamo.variables.optimizer"], _keep_steps_in_place)
    _compile.replay_random_numbers_on_npu()
    _compile.start_device_for_fake_tensors()
    _cast_weight.install()
    _lightning.install()
    _allow_flex_attention()
    _answer_for_default_streams()


def _allow_uninitialized_parameters() -> None:
    from torch.nn.parameter import UninitializedTensorMixin

    UninitializedTensorMixin._allowed_methods.append(torch.Tensor.npu)


def _name_profiler_activity() -> None:
    """torch 2.13 renames the activity itself; older ones do not."""
    activity = torch._C._profiler.ProfilerActivity
    if not hasattr(activity, "NPU"):
        activity.NPU = activity.PrivateUse1


def _skip_random_state(module) -> None:
    """Dynamo calls functions of torch.cuda.random and traces ours, which fails where the caller has
    switched dispatching off; `module` is torch._dynamo.trace_rules."""
    module.add("torch_npu.npu.random")


def _keep_steps_in_place(module) -> None:
    """Before every group of parameters, Dynamo replaces step tensors on the CPU by copies on the
    device: those of the groups before it, which are part of the graph already, would count no more.
    Optimizers that are not capturable have them on the CPU; `module` is
    torch._dynamo.variables.optimizer."""
    original = module.OptimizerVariable.move_step_if_cpu

    @functools.wraps(original)
    def move_step_if_cpu(self) -> None:
        groups = [g for g in self.value.param_groups if not g.get("capturable")]
        if all(p.device.type != "npu" for group in groups for p in group["params"]):
            original(self)

    module.OptimizerVariable.move_step_if_cpu = move_step_if_cpu


def _allow_flex_attention() -> None:
    """It refuses devices that it does not know by name; its operators work on npu, backward too."""

    def allow(module) -> None:
        original = module._validate_device

        @functools.wraps(original)
        def validate_device(query, key, value):
            if query.device.type != "npu":
                original(query, key, value)

        module._validate_device = validate_device

    when_imported(["torch.nn.attention.flex_attention"], allow)


def _answer_for_default_streams() -> None:
    """Offloaded caches of Transformers ask torch.cuda for the default stream of a tensor's device."""
    original = torch.cuda.default_stream

    @functools.wraps(original)
    def default_stream(device=None):
        if isinstance(device, torch.device) and device.type == "npu":
            return torch.npu.default_stream(device)
        return original(device)

    torch.cuda.default_stream = default_stream


def _profile_without_device() -> None:
    """As with CUDA: where there is no npu device a profile is the CPU's, with a warning.

    PyTorch would ask the device to synchronise when the profile ends, and crash after that fails.
    """
    cls = torch.autograd.profiler.profile
    original = cls.__init__

    @functools.wraps(original)
    def init(self, enabled=True, *, use_device=None, **options):
        if enabled and use_device == "npu" and not torch.npu.is_available():
            import warnings

            warnings.warn("NPU is not available, disabling NPU profiling", stacklevel=2)
            use_device = None
        original(self, enabled, use_device=use_device, **options)

    cls.__init__ = init


def _patch_dlpack() -> None:
    """`__dlpack_device__` compares with the literal "privateuse1" and so refuses npu tensors."""
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def dlpack_device(self):
        if type(self) is torch.Tensor and self.device.type == "npu":
            return (_ext_dev(), self.device.index)
        return original(self)

    torch.Tensor.__dlpack_device__ = dlpack_device


def _ext_dev():
    from torch.utils.dlpack import DLDeviceType

    return DLDeviceType.kDLExtDev


def _patch_forking_pickler() -> None:
    """Npu tensors travel between processes as copies.

    Device memory cannot be shared with another process, and PyTorch's reducer
    would end in an error about storages; the bytes go through CPU instead. Arguments of a process
    that is about to be spawned are sent by value: shared memory of a copy ends with the copy, before
    that process can open it.
    """
    from multiprocessing.context import get_spawning_popen
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    original = reductions.reduce_tensor

    @functools.wraps(original)
    def reduce_tensor(tensor):
        if tensor.device.type != "npu":
            return original(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            return original(tensor)  # PyTorch's own refusal
        copy = tensor.detach().cpu()
        rest = (str(tensor.device), tensor.requires_grad, type(tensor))
        if get_spawning_popen() is None:
            return _rebuild_npu, (copy, *rest)
        file = io.BytesIO()
        torch.save(copy, file)
        return _rebuild_npu_from_bytes, (file.getvalue(), *rest)

    reductions.reduce_tensor = reduce_tensor
    for kind in (torch.Tensor, torch.nn.Parameter, *torch._tensor_classes):
        ForkingPickler.register(kind, reduce_tensor)


def _rebuild_npu(on_cpu, device, requires_grad, kind):
    moved = on_cpu.to(device)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(moved, requires_grad=requires_grad)
    return moved.requires_grad_(requires_grad) if requires_grad else moved


def _rebuild_npu_from_bytes(data, device, requires_grad, kind):
    return _rebuild_npu(torch.load(io.BytesIO(data)), device, requires_grad, kind)


def _patch_deepcopy() -> None:
    """A copied storage is a plain one: its tensor gets the format of the original again."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        original = kind.__deepcopy__

        @functools.wraps(original)
        def deepcopy(self, memo, original=original):
            made = original(self, memo)
            if self.device.type == "npu" and self.layout == torch.strided:
                _give_format(made, self)
            return made

        kind.__deepcopy__ = deepcopy


def _give_format(made, original) -> None:
    from torch_npu import _C
    from torch_npu._format import get_npu_format

    wanted = get_npu_format(original)
    if made.device.type != "npu" or get_npu_format(made) == wanted:
        return
    _C._restore_format(made, int(wanted))
    if get_npu_format(made) != wanted:  # the copy has no room for the padding
        made.data = torch.ops.npu.npu_format_cast(made.data, int(wanted))


def _name_byte_mask_dropout() -> None:
    """Old programs find these in torch.nn."""
    from torch_npu.contrib.function.npu_functional import dropout_with_byte_mask
    from torch_npu.contrib.module.npu_modules import DropoutWithByteMask

    torch.nn.functional.dropout_with_byte_mask = dropout_with_byte_mask
    torch.nn.DropoutWithByteMask = DropoutWithByteMask
