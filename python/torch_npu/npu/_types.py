# SPDX-License-Identifier: Apache-2.0
"""Legacy names: torch.npu.FloatTensor, torch.npu.FloatStorage and their kin."""

import torch

_DTYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_STORAGE_ONLY = {"ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128}


class _TensorType(type):
    """A type that makes and recognises npu tensors of one dtype, and has no instances itself."""

    def __call__(cls, *args, **kwargs) -> torch.Tensor:
        sizes = all(isinstance(size, int) for size in args) or isinstance(args[0], torch.Size)
        if sizes:
            size = args[0] if args and isinstance(args[0], torch.Size) else args or (0,)
            return torch.empty(size, dtype=cls.dtype, device="npu", **kwargs)
        return torch.tensor(*args, dtype=cls.dtype, device="npu", **kwargs)

    def __instancecheck__(cls, instance) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "npu"
            and instance.dtype == cls.dtype
        )


def _tensor_type(name: str, dtype: torch.dtype) -> type:
    # Tensor.type() reads the C name of a class it is given: that must be the full one.
    full = f"torch.npu.{name}Tensor"
    return _TensorType(full, (), {"dtype": dtype, "__module__": "torch.npu", "is_sparse": False})


class _LegacyStorage(torch.storage._LegacyStorage):
    @classmethod
    def from_buffer(cls, *args, **kwargs):
        raise RuntimeError("from_buffer: Not available for NPU storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args, **kwargs):
        raise RuntimeError("_new_with_weak_ptr: Not available for NPU storage")

    @classmethod
    def _new_shared_filename(cls, manager, obj, size, *, device=None, dtype=None):
        raise RuntimeError("_new_shared_filename: Not available for NPU storage")


def _storage_type(name: str, dtype: torch.dtype) -> type:
    members = {"dtype": dtype, "_dtype": dtype, "__module__": "torch.npu"}
    return type(_LegacyStorage)(f"{name}Storage", (_LegacyStorage,), members)


tensor_types = {f"{name}Tensor": _tensor_type(name, dtype) for name, dtype in _DTYPES.items()}
storage_types = {
    f"{name}Storage": _storage_type(name, dtype)
    for name, dtype in {**_DTYPES, **_STORAGE_ONLY}.items()
}
globals().update(tensor_types)
globals().update(storage_types)
__all__ = [*tensor_types, *storage_types]
