# SPDX-License-Identifier: Apache-2.0
"""torch.compile on npu tensors: the Python parts that PyTorch has for its own devices only.

Its default backend, Inductor, gets a CPU twin of the graph (_inductor). A part that is computed
twice, as torch.utils.checkpoint has it, draws the same random numbers both times. Fake tensors of a
process that has not touched the device yet can go backward.
"""

import functools

import torch


def give_inductor_cpu_twins() -> None:
    """Inductor looks the device up in its tables, deep inside, and ends in a KeyError."""
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def call(self, model_, inputs_, **kwargs):
        if not _uses_npu(model_, inputs_):
            return original(self, model_, inputs_, **kwargs)
        from torch_npu import _inductor

        patches = {**self.config, **(kwargs.get("config_patches") or {})}
        return _inductor.compile_graph(model_, inputs_, patches, getattr(self, "name", None))

    wrapper.__call__ = call


def refuse_ahead_of_time(module) -> None:
    """AOTInductor ends in its table of devices. `module` is torch._inductor.compile_fx."""
    original = module.compile_fx_aot

    @functools.wraps(original)
    def compile_fx_aot(model_, example_inputs_, *args, **kwargs):
        if _uses_npu(model_, example_inputs_):
            from torch_npu import _inductor

            raise RuntimeError(_inductor.AHEAD_OF_TIME)
        return original(model_, example_inputs_, *args, **kwargs)

    module.compile_fx_aot = compile_fx_aot


def _uses_npu(graph_module, inputs) -> bool:
    values = list(inputs)
    for node in graph_module.graph.nodes:
        values += [node.meta.get("example_value"), node.meta.get("val")]
    return any(isinstance(value, torch.Tensor) and value.is_npu for value in values)


def replay_random_numbers_on_npu() -> None:
    """The two operators that AOTAutograd puts around random ones know devices by a fixed list."""
    from torch._prims import rng_prims

    def save(op, *args, **kwargs):
        return torch.npu.get_rng_state(_npu_of(args, kwargs)), op(*args, **kwargs)

    def replay(state, op, *args, **kwargs):
        device = _npu_of(args, kwargs)
        before = torch.npu.get_rng_state(device)
        torch.npu.set_rng_state(state, device)
        try:
            return op(*args, **kwargs)
        finally:
            torch.npu.set_rng_state(before, device)

    _also_on_npu(rng_prims.run_and_save_rng_state, save, first=1)
    _also_on_npu(rng_prims.run_with_rng_state, replay, first=2)


def _also_on_npu(operator, kernel, first: int) -> None:
    """Arguments of the random operator begin at `first`; other devices go where they went."""
    from torch._C import DispatchKey
    from torch._higher_order_ops import utils

    def choosing(original):
        @functools.wraps(original)
        def choose(*args, **kwargs):
            on_npu = _npu_of(args[first:], kwargs) is not None
            return (kernel if on_npu else original)(*args, **kwargs)

        return choose

    operator.py_impl(DispatchKey.PrivateUse1)(kernel)
    kernels = operator.py_kernels
    kernels[DispatchKey.BackendSelect] = choosing(kernels[DispatchKey.BackendSelect])
    fakes = getattr(utils, "registered_hop_fake_fns", {})
    if operator in fakes:
        fakes[operator] = choosing(fakes[operator])
    operator._dispatch_cache.clear()


def _npu_of(args, kwargs) -> torch.device | None:
    """The npu device that a random operator with these arguments draws on."""
    if kwargs.get("device") is not None:
        named = torch.device(kwargs["device"])
        return named if named.type == "npu" else None
    tensors = (a for a in args if isinstance(a, torch.Tensor))
    device = next((t.device for t in tensors), None)
    return device if device is not None and device.type == "npu" else None


def start_device_for_fake_tensors() -> None:
    """Autograd's threads of the device serve fake tensors too; PyTorch starts CUDA's and XPU's."""
    from torch._subclasses.fake_tensor import FakeTensor

    original = FakeTensor.__new__

    @functools.wraps(original)
    def new(cls, *args, **kwargs):
        made = original(cls, *args, **kwargs)
        if made.fake_device.type == "npu" and not torch.npu.is_initialized():
            _start_device()
        return made

    FakeTensor.__new__ = new


def _start_device() -> None:
    """Where there is one: shapes can be traced without."""
    if torch.npu.is_available() and not torch.npu._is_in_bad_fork():
        torch.npu.init()
