# SPDX-License-Identifier: Apache-2.0
"""torch.cuda and its submodules, answering for the chosen device."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from types import ModuleType

import torch
import torch.cuda.nccl
import torch.cuda.nvtx
import torch.cuda.profiler

from ditorch import devices, host, showing
from ditorch.functions import by_any, proxy
from ditorch.patching import Patches

_PRIVATE = ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "_exchange_device", "_sleep",
            "_maybe_exchange_device")  # fmt: skip
_TYPES = ("Double Float Half BFloat16 Long Int Short Char Byte Bool").split()
# What torch.cuda calls after its own kind of device.
_RENAMED = {"CUDAGraph": "Graph", "CUDAPluggableAllocator": "PluggableAllocator"}


def patch(patches: Patches) -> None:
    _accelerator(patches)
    theirs = None if devices.target == "cpu" else torch.get_device_module(devices.target)
    names = [n for n in dir(torch.cuda) if not n.startswith("_")] + list(_PRIVATE)
    for name in names:
        before = getattr(torch.cuda, name, None)
        if isinstance(before, ModuleType) or not callable(before):
            continue
        found = _answer(theirs, name)
        if found is not None:
            patches.set(torch.cuda, name, found)
    _types(patches)
    _submodules(patches, theirs)
    _private(patches)
    _handles(patches, theirs)
    _runtime(patches)
    if theirs is not None and hasattr(theirs, "default_generators"):
        patches.set(torch.cuda, "default_generators", theirs.default_generators)


def _accelerator(patches: Patches) -> None:
    """A PyTorch built with CUDA names it where no plugin has taken its place, GPU or not, and asks
    torch.cuda whether it is there: which is about to answer for the chosen device."""
    built = torch.accelerator.current_accelerator()
    if built is not None and built.type == "cuda":
        patches.wrap(
            torch.accelerator,
            "current_accelerator",
            lambda original: lambda check_available=False: None,
        )


def _handles(patches: Patches, theirs: ModuleType | None) -> None:
    """`stream.cuda_stream`, which extensions pass on: the device's own handle."""
    for kind, name in (("Stream", "stream"), ("Event", "event")):
        real = getattr(theirs, kind, None)
        own = f"{devices.target}_{name}"
        if real is not None and hasattr(real, own) and not hasattr(real, f"cuda_{name}"):
            handle = property(operator.attrgetter(own), doc=f"What `{own}` is.")
            patches.set(real, f"cuda_{name}", handle)


def _runtime(patches: Patches) -> None:
    """torch.cuda.cudart() and what torch.cuda.profiler does with it."""
    for owner in (torch.cuda, torch.cuda.profiler):
        patches.set(owner, "cudart", host.cudart)
    patches.set(torch.cuda, "_cudart", host.cudart())  # check_error() compares with its codes


def _private(patches: Patches) -> None:
    """What libraries call past torch.cuda."""

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        kind = torch.cuda.current_stream(device_index).__class__
        torch.cuda.set_stream(
            kind(stream_id=stream_id, device_index=device_index, device_type=device_type)
        )

    patches.set(torch._C, "_cuda_setDevice", lambda device: torch.cuda.set_device(device))
    patches.set(torch._C, "_cuda_getDevice", lambda: torch.cuda.current_device())
    patches.set(torch._C, "_cuda_setStream", set_stream)
    # The first with all that scripts ask its number for.
    patches.set(torch.cuda.nccl, "version", lambda: (2, 10, 3))


def _answer(theirs: ModuleType | None, name: str) -> object | None:
    """The device's own function or class, else the host's stand-in, else nothing."""
    if name == "get_device_capability":
        return host.get_device_capability
    renamed = devices.target.upper() + _RENAMED[name] if name in _RENAMED else name
    found = getattr(theirs, renamed, None) if theirs is not None else None
    if found is None and not _is_own_kind(theirs, name):
        found = vars(host).get(name)
    if found is None:
        return None
    if inspect.isclass(found):
        # `except` takes classes of exceptions only, and these need no device.
        return found if issubclass(found, BaseException) else proxy(found, "torch.cuda")
    if name == "get_device_properties":
        found = _properties(found)
    # A function of its own for each name: torch.compile keeps its rules by function.
    return functools.wraps(found)(by_any(found))


def _properties(ask: Callable) -> Callable:
    """With the fields CUDA's have and scripts read; the device's own come first."""

    class Properties:
        def __init__(self, own: object) -> None:
            self._own = own

        def __getattr__(self, name: str):
            value = getattr(self._own, name, None)
            return value if value is not None else getattr(host.get_device_properties(), name)

        def __dir__(self) -> list[str]:
            return sorted({*dir(self._own), *vars(host.get_device_properties())})

        def __repr__(self) -> str:
            return repr(self._own)

    def call(device=None):
        return Properties(ask(device))

    return call


def _is_own_kind(theirs: ModuleType | None, name: str) -> bool:
    """A host's stream or event is of no use to a device."""
    return theirs is not None and name in ("Stream", "Event", "stream", "set_stream",
                                           "current_stream", "default_stream")  # fmt: skip


class _TypeMeta(type):
    def __call__(cls, *args, **kwargs):
        return getattr(torch, cls.__name__)(*args, **kwargs).to(devices.target)

    def __instancecheck__(cls, instance) -> bool:
        # Where the device is the cpu, its tensors are.
        kind = getattr(torch, cls.__name__)
        return (
            isinstance(instance, torch.Tensor)
            and instance.dtype is kind.dtype
            and showing.is_on_target(instance)
        )


def _types(patches: Patches) -> None:
    """torch.cuda.FloatTensor and the others."""
    for name in (kind + "Tensor" for kind in _TYPES):
        fields = {
            "__module__": "torch.cuda",
            "cuda_name": "torch.cuda." + name,
            "dtype": getattr(torch, name).dtype,
        }
        patches.set(torch.cuda, name, _TypeMeta(name, (), fields))


def _submodules(patches: Patches, theirs: ModuleType | None) -> None:
    """Names that are in a module of their own too: torch.cuda.memory.memory_allocated."""
    for module in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
        for name in [*getattr(module, "__all__", []), "Stream", "Event"]:
            ours = vars(torch.cuda).get(name)
            if hasattr(module, name) and ours is not None:
                patches.set(module, name, ours)
    marks = getattr(theirs, "mstx", None) or getattr(theirs, "nvtx", None)
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        found = getattr(marks, name, None) or (lambda *_: 0)
        patches.set(torch.cuda.nvtx, name, found)
