# SPDX-License-Identifier: Apache-2.0
"""PyTorch's functions and methods that take a device."""

import functools

import torch

from ._devices import device, real_device, to_npu, type_to_npu


def patch() -> None:
    _patch_constructors()
    _patch_tensor()
    _patch_module()
    _patch_classes()
    _patch_amp()
    _patch_random_and_defaults()
    _patch_load()
    torch.device = device


def _replace(owner, name: str, wrap) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(wrap(original)))


def _device_keyword(original):
    """For functions that take the device by name only."""

    def call(*args, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = to_npu(kwargs["device"])
        return original(*args, **kwargs)

    return call


def _any_argument(original):
    """For functions that may take the device anywhere."""

    def call(*args, **kwargs):
        return original(*[to_npu(a) for a in args], **{k: to_npu(v) for k, v in kwargs.items()})

    return call


def _replace_operator(owner, name: str) -> None:
    from torch.jit import _builtins

    operator = _builtins._find_builtin(getattr(owner, name))
    _replace(owner, name, _device_keyword)
    if operator:  # torch.jit finds operators by the identity of the function
        _builtins._register_builtin(getattr(owner, name), operator)


def _patch_constructors() -> None:
    from torch.utils._device import _device_constructors

    for function in list(_device_constructors()):
        name = getattr(function, "__name__", "")
        for owner in (torch, torch.fft, torch.signal.windows, torch.sparse):
            if getattr(owner, name, None) is function:
                _replace_operator(owner, name)
    for name in ("empty_like", "full_like", "ones_like", "rand_like", "randint_like",
                 "randn_like", "zeros_like"):  # fmt: skip
        if not hasattr(getattr(torch, name), "__wrapped__"):
            _replace_operator(torch, name)


def _patch_tensor() -> None:
    for name in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor",
                 "new_zeros", "new"):  # fmt: skip
        _replace(torch.Tensor, name, _device_keyword)
    for name in ("to", "pin_memory", "is_pinned"):
        _replace(torch.Tensor, name, _any_argument)

    def by_type(original):
        def call(self, dtype=None, *args, **kwargs):
            return original(self, type_to_npu(dtype), *args, **kwargs)

        return call

    _replace(torch.Tensor, "type", by_type)
    torch.Tensor.cuda = _moving(torch.Tensor.npu)
    torch.Tensor.is_cuda = torch.Tensor.is_npu
    for storage in (torch.storage._StorageBase, torch.UntypedStorage, torch.TypedStorage):
        storage.cuda = _moving(storage.npu)
        storage.is_cuda = storage.is_npu
    sequence = torch.nn.utils.rnn.PackedSequence
    sequence.cuda = sequence.npu
    sequence.is_cuda = sequence.is_npu


def _moving(method):
    """`x.cuda(device, ...)` as `x.npu(device, ...)`."""

    @functools.wraps(method)
    def cuda(self, device=None, *args, **kwargs):
        return method(self, to_npu(device), *args, **kwargs)

    cuda.__name__ = "cuda"
    return cuda


def _patch_module() -> None:
    _replace(torch.nn.Module, "to", _any_argument)
    _replace(torch.nn.Module, "to_empty", _any_argument)
    torch.nn.Module.cuda = _moving(torch.nn.Module.npu)


class _ProxyMeta(type):
    """A class in the place of `real`: makes it with npu for cuda, and recognises it."""

    def __call__(cls, *args, **kwargs):
        return cls.real(*[to_npu(a) for a in args], **{k: to_npu(v) for k, v in kwargs.items()})

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, cls.real)

    def __getattr__(cls, name):
        return getattr(cls.real, name)


def _patch_classes() -> None:
    torch.Generator = _ProxyMeta("Generator", (), {"real": torch.Generator, "__module__": "torch"})
    for name in ("Stream", "Event"):
        setattr(torch, name, _derivable_proxy(name, getattr(torch, name)))


def _derivable_proxy(name: str, real: type) -> type:
    """The same for a class that others derive from."""

    class Meta(type(real)):
        def __instancecheck__(cls, instance) -> bool:
            return (
                isinstance(instance, real) if cls is proxy else super().__instancecheck__(instance)
            )

    def new(cls, *args, **kwargs):
        args = [to_npu(a) for a in args]
        return real.__new__(cls, *args, **{k: to_npu(v) for k, v in kwargs.items()})

    proxy = Meta(name, (real,), {"__new__": new, "__module__": "torch"})
    return proxy


def _patch_amp() -> None:
    def init(original):
        def call(self, device_type="npu", *args, **kwargs):
            return original(self, to_npu(device_type), *args, **kwargs)

        return call

    _replace(torch.amp.autocast, "__init__", init)

    def scaler_init(original):
        def call(self, device="npu", *args, **kwargs):
            return original(self, to_npu(device), *args, **kwargs)

        return call

    _replace(torch.amp.GradScaler, "__init__", scaler_init)
    for name in ("custom_fwd", "custom_bwd"):
        _replace(torch.amp, name, _device_type)
    for name in ("is_autocast_available", "is_autocast_enabled", "set_autocast_enabled",
                 "get_autocast_dtype", "set_autocast_dtype"):  # fmt: skip
        _replace(torch, name, _any_argument)
    torch.amp.is_autocast_available = torch.amp.autocast_mode.is_autocast_available
    _replace(torch.amp, "is_autocast_available", _any_argument)
    if hasattr(torch, "get_autocast_gpu_dtype"):
        torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("npu")
        torch.set_autocast_gpu_dtype = lambda dtype: torch.set_autocast_dtype("npu", dtype)


def _device_type(original):
    def call(*args, **kwargs):
        if "device_type" in kwargs:
            kwargs["device_type"] = to_npu(kwargs["device_type"])
        return original(*args, **kwargs)

    return call


def _patch_random_and_defaults() -> None:
    _replace(torch, "set_default_device", _any_argument)
    _replace(torch, "get_device_module", _any_argument)
    _replace(torch.random, "fork_rng", _device_type)
    if hasattr(torch, "set_default_tensor_type"):

        def by_name(original):
            def call(kind):
                name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
                name = type_to_npu(name)
                if not name.startswith("torch.npu."):
                    return original(kind)
                # PyTorch's own setter knows no npu types: say the two halves.
                torch.set_default_device("npu")
                dtype = getattr(torch.npu, name.rpartition(".")[2]).dtype
                torch.set_default_dtype(dtype)

            return call

        _replace(torch, "set_default_tensor_type", by_name)


def _patch_load() -> None:
    def mapped(original):
        def call(f, map_location=None, *args, **kwargs):
            if isinstance(map_location, dict):
                # Files of CUDA programs name cuda, those of this program npu.
                named = {k: to_npu(v) for k, v in map_location.items()}
                map_location = {**{to_npu(k): v for k, v in named.items()}, **named}
            elif not callable(map_location) or isinstance(map_location, real_device):
                map_location = to_npu(map_location)
            return original(f, map_location, *args, **kwargs)

        return call

    _replace(torch, "load", mapped)
    torch.serialization.load = torch.load

    def restore(storage, location):
        if not location.startswith("cuda"):
            return None
        index = real_device(to_npu(location)).index or 0
        if index >= torch.npu.device_count():
            raise RuntimeError(
                f"Attempting to deserialize object saved on {location} as npu:{index}, but "
                f"torch.npu.device_count() is {torch.npu.device_count()}. "
                "Use torch.load with map_location to choose an existing device."
            )
        return storage.npu(index)

    # Before CUDA's own entry (priority 20).
    torch.serialization.register_package(15, lambda storage: None, restore)
