# SPDX-License-Identifier: Apache-2.0
"""PyTorch's functions, methods and classes that take a device."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch.utils import _device

from ditorch import devices, showing
from ditorch.devices import from_cuda_argument, map_all, numbered_to_target, to_target
from ditorch.patching import Patches

_LIKE = (
    "empty_like full_like ones_like rand_like randint_like randn_like zeros_like asarray"
).split()
_NEW = "new_empty new_empty_strided new_full new_ones new_tensor new_zeros new".split()


def patch(patches: Patches) -> None:
    _constructors(patches)
    _tensor(patches)
    _module(patches)
    _classes(patches)
    _amp(patches)
    _settings(patches)
    _load(patches)


def by_keyword(original: Callable) -> Callable:
    """For functions that take the device by name only."""

    def call(*args, **kwargs):
        if kwargs.get("device") is not None:
            kwargs["device"] = numbered_to_target(kwargs["device"])
        return original(*args, **kwargs)

    return call


def by_first(original: Callable) -> Callable:
    """For methods that take the device first, or by name: to(0) is one too."""

    def call(self, *args, **kwargs):
        if args:
            args = (numbered_to_target(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = numbered_to_target(kwargs["device"])
        return original(self, *args, **kwargs)

    return call


def by_any(original: Callable) -> Callable:
    """For functions that may take the device anywhere."""

    def call(*args, **kwargs):
        args, kwargs = map_all(args, kwargs)
        return original(*args, **kwargs)

    return call


def _constructors(patches: Patches) -> None:
    constructors = _device._device_constructors()  # kept by PyTorch from the first question on
    names = {getattr(function, "__name__", "") for function in constructors} | set(_LIKE)
    for name in sorted(names):
        for owner in (torch, torch.fft, torch.signal.windows, torch.sparse):
            function = getattr(owner, name, None)
            if function in constructors or (owner is torch and name in _LIKE):
                _operator(patches, owner, name)


def _operator(patches: Patches, owner: object, name: str) -> None:
    from torch.jit import _builtins

    operator = _builtins._find_builtin(getattr(owner, name))
    patches.wrap(owner, name, by_keyword)
    if operator:  # torch.jit.script finds operators by the identity of the function
        ours = getattr(owner, name)
        _builtins._register_builtin(ours, operator)
        patches.on_undo(lambda: _builtins._get_builtin_table().pop(id(ours), None))


def _tensor(patches: Patches) -> None:
    for name in _NEW:
        patches.wrap(torch.Tensor, name, by_keyword)
    patches.wrap(torch.Tensor, "to", by_first)

    def cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
        return self.to(
            from_cuda_argument(device), non_blocking=non_blocking, memory_format=memory_format
        )

    patches.wrap(torch.Tensor, "cuda", lambda _: cuda)
    patches.wrap(torch.Tensor, "type", _by_type)
    patches.wrap(torch.Tensor, "pin_memory", _pin_memory)
    patches.wrap(torch.Tensor, "is_pinned", by_any)
    if devices.target == "cpu":  # one queue: memory in use cannot be freed by another stream
        patches.wrap(torch.Tensor, "record_stream", lambda _: lambda self, stream: None)

    def storage_cuda(self, device=None, non_blocking=False):
        return self.to(device=from_cuda_argument(device), non_blocking=non_blocking)

    for storage in (torch.UntypedStorage, torch.TypedStorage):
        patches.wrap(storage, "cuda", lambda _: storage_cuda)
    sequence = torch.nn.utils.rnn.PackedSequence
    patches.wrap(
        sequence, "cuda", lambda _: lambda self, *a, **k: self.to(from_cuda_argument(None), *a, **k)
    )


def _pin_memory(original: Callable) -> Callable:
    def pin_memory(self, device=None):
        if devices.target == "cpu":
            return self  # nothing to pin it for
        return original(self) if device is None else original(self, to_target(device))

    return pin_memory


def _by_type(original: Callable) -> Callable:
    """`x.type("torch.cuda.HalfTensor")`."""

    def call(self, dtype=None, *args, **kwargs):
        name = dtype if isinstance(dtype, str) else getattr(dtype, "cuda_name", "")
        if name.startswith("torch.cuda."):
            kind = getattr(torch, name.rpartition(".")[2])
            return self.to(device=devices.target, dtype=kind.dtype)
        made = original(self, dtype, *args, **kwargs)
        if isinstance(made, str) and showing.wanted():
            return made.replace(f"torch.{devices.target}.", "torch.cuda.")
        return made

    return call


def _module(patches: Patches) -> None:
    patches.wrap(torch.nn.Module, "to", by_first)
    patches.wrap(torch.nn.Module, "to_empty", by_first)

    def cuda(self, device=None):
        return self._apply(lambda t: t.cuda(device))

    patches.wrap(torch.nn.Module, "cuda", lambda _: cuda)
    # PyTorch shares batches out by CUDA only, and CUDA that is there is not meant: without a device
    # DataParallel is its module.
    data_parallel = importlib.import_module("torch.nn.parallel.data_parallel")
    patches.wrap(data_parallel, "_get_available_device_type", lambda _: lambda: None)


class ProxyMeta(type):
    """A class in the place of `real`: makes it with the device mapped, and recognises it."""

    def __call__(cls, *args, **kwargs):
        args, kwargs = map_all(args, kwargs)
        return cls.real(*args, **kwargs)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, other) -> bool:
        return other is cls or issubclass(other, cls.real)

    def __getattr__(cls, name):
        return getattr(cls.real, name)


def proxy(real: type, module: str = "torch") -> type:
    return ProxyMeta(
        real.__name__, (), {"real": real, "__module__": module, "__doc__": real.__doc__}
    )


def _derivable(real: type) -> type:
    """The same for a class that others derive from."""

    class Meta(type(real)):
        def __instancecheck__(cls, instance) -> bool:
            return (
                isinstance(instance, real) if cls is ours else super().__instancecheck__(instance)
            )

    def new(cls, *args, **kwargs):
        args, kwargs = map_all(args, kwargs)
        return real.__new__(cls, *args, **kwargs)

    ours = Meta(real.__name__, (real,), {"__new__": new, "__module__": "torch"})
    return ours


def _classes(patches: Patches) -> None:
    patches.set(torch, "Generator", proxy(torch.Generator))
    if devices.target != "cpu":
        for name in ("Stream", "Event"):
            patches.set(torch, name, _derivable(getattr(torch, name)))


def _device_first(original: Callable) -> Callable:
    """The device's name comes first; the old form, without one, means cuda."""

    def call(*args, **kwargs):
        if not (args and isinstance(args[0], str)) and "device_type" not in kwargs:
            args = ("cuda", *args)
        args, kwargs = map_all(args, kwargs)
        return original(*args, **kwargs)

    return call


def _amp(patches: Patches) -> None:
    def first_device(original):
        def call(self, device_type="cuda", *args, **kwargs):
            return original(self, to_target(device_type), *args, **kwargs)

        return call

    def scaler(original):
        def call(self, device="cuda", *args, **kwargs):
            return original(self, to_target(device), *args, **kwargs)

        return call

    patches.wrap(torch.amp.autocast_mode.autocast, "__init__", first_device)
    patches.wrap(torch.amp.GradScaler, "__init__", scaler)
    # custom_fwd compares its device's name with what tensors say of theirs.
    named = () if showing.wanted() else ("custom_fwd", "custom_bwd")
    for owner in (torch.amp, torch.amp.autocast_mode):
        for name in ("is_autocast_available", *named):
            patches.wrap(owner, name, by_any)
    for name in (
        "is_autocast_enabled set_autocast_enabled get_autocast_dtype set_autocast_dtype"
    ).split():
        patches.wrap(torch, name, _device_first)
    patches.wrap(
        torch, "get_autocast_gpu_dtype", lambda _: lambda: torch.get_autocast_dtype("cuda")
    )
    patches.wrap(
        torch,
        "set_autocast_gpu_dtype",
        lambda _: lambda dtype: torch.set_autocast_dtype("cuda", dtype),
    )


def _settings(patches: Patches) -> None:
    # Both torch.set_default_device() and `with torch.device("cuda"):` come to this class.
    patches.wrap(_device.DeviceContext, "__init__", by_any)

    def default_type(original):
        def call(kind):
            name = kind if isinstance(kind, str) else getattr(kind, "cuda_name", "")
            if not name.startswith("torch.cuda."):
                return original(kind)
            torch.set_default_device("cuda")
            torch.set_default_dtype(getattr(torch, name.rpartition(".")[2]).dtype)

        return call

    patches.wrap(torch, "set_default_tensor_type", default_type)


def _location(map_location: object) -> object:
    """`map_location` for files of CUDA programs and of this program, which name the target."""
    if isinstance(map_location, dict):
        named = {k: to_target(v) for k, v in map_location.items()}
        return {**{to_target(k): v for k, v in named.items()}, **named}
    if callable(map_location) and showing.wanted():

        def call(storage: object, location: str) -> object:
            name, _, index = location.partition(":")
            shown = f"cuda:{index}" if name == devices.target else location
            return map_location(storage, shown)

        return call
    return to_target(map_location)


def _load(patches: Patches) -> None:
    def mapped(original):
        def call(f, map_location=None, *args, **kwargs):
            return original(f, _location(map_location), *args, **kwargs)

        return call

    patches.wrap(torch, "load", mapped)
    patches.wrap(torch.serialization, "load", mapped)
    patches.wrap(torch.jit, "load", by_any)

    def restore(storage, location):
        if not location.startswith("cuda"):
            return None
        device = torch.device(to_target(location))
        count = torch.cuda.device_count()
        if device.index is not None and device.index >= count:
            raise RuntimeError(
                f"torch.load: the file was saved on {location}, and {devices.target} has {count} "
                "devices: choose one with map_location"
            )
        return storage if device.type == "cpu" else storage.to(device=device)

    registry = torch.serialization._package_registry
    before = list(registry)
    torch.serialization.register_package(15, lambda storage: None, restore)  # before CUDA's, at 20
    entry = next(e for e in registry if e not in before)
    patches.on_undo(lambda: registry.remove(entry))
