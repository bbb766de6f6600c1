# SPDX-License-Identifier: Apache-2.0
"""Types, formats and tensors of Ascend's graphs, as converters see them.

A converter gets PyTorch's tensors and calls PyTorch's operators, so these names stand for what
PyTorch has: a DataType equals the torch.dtype of its kind, a Tensor is a torch.Tensor with `rank`.
"""

import enum
import threading

import torch

__all__ = ["Cast", "Clone", "Const", "DataType", "Format", "Tensor", "TensorSpec"]

# Ascend's types that PyTorch has.
_TORCH = {
    "DT_FLOAT": torch.float32, "DT_FLOAT16": torch.float16, "DT_INT8": torch.int8,
    "DT_INT32": torch.int32, "DT_UINT8": torch.uint8, "DT_INT16": torch.int16,
    "DT_UINT16": torch.uint16, "DT_UINT32": torch.uint32, "DT_INT64": torch.int64,
    "DT_UINT64": torch.uint64, "DT_DOUBLE": torch.float64, "DT_BOOL": torch.bool,
    "DT_COMPLEX64": torch.complex64, "DT_COMPLEX128": torch.complex128, "DT_BF16": torch.bfloat16,
    "DT_COMPLEX32": torch.complex32, "DT_FLOAT8_E5M2": torch.float8_e5m2,
    "DT_FLOAT8_E4M3FN": torch.float8_e4m3fn, "DT_FLOAT8_E8M0": torch.float8_e8m0fnu,
}  # fmt: skip


class _DataType(enum.IntEnum):
    """Ascend's number of a type; equal to the torch.dtype that is the same type, so that
    `x.dtype == DataType.DT_FLOAT` holds for a float32 tensor."""

    def __eq__(self, other) -> bool:
        if isinstance(other, torch.dtype):
            return _TORCH.get(self.name) is other
        return int(self) == other

    def __ne__(self, other) -> bool:
        return not self == other

    __hash__ = enum.IntEnum.__hash__


DataType = _DataType(  # type: ignore[call-arg]  # a subclass with members makes a class too
    "DataType",
    {
        "DT_FLOAT": 0, "DT_FLOAT16": 1, "DT_INT8": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 6,
        "DT_UINT16": 7, "DT_UINT32": 8, "DT_INT64": 9, "DT_UINT64": 10, "DT_DOUBLE": 11,
        "DT_BOOL": 12, "DT_STRING": 13, "DT_DUAL_SUB_INT8": 14, "DT_DUAL_SUB_UINT8": 15,
        "DT_COMPLEX64": 16, "DT_COMPLEX128": 17, "DT_QINT8": 18, "DT_QINT16": 19, "DT_QINT32": 20,
        "DT_QUINT8": 21, "DT_QUINT16": 22, "DT_RESOURCE": 23, "DT_STRING_REF": 24, "DT_DUAL": 25,
        "DT_VARIANT": 26, "DT_BF16": 27, "DT_UNDEFINED": 28, "DT_INT4": 29, "DT_UINT1": 30,
        "DT_INT2": 31, "DT_UINT2": 32, "DT_COMPLEX32": 33, "DT_HIFLOAT8": 34, "DT_FLOAT8_E5M2": 35,
        "DT_FLOAT8_E4M3FN": 36, "DT_FLOAT8_E8M0": 37, "DT_FLOAT4_E2M1": 40, "DT_FLOAT4_E1M2": 41,
        "DT_MAX": 42,
    },
    module=__name__,
)  # fmt: skip

Format = enum.Enum(
    "Format",
    {
        "FORMAT_UNDEFINED": -1, "FORMAT_NCHW": 0, "FORMAT_NHWC": 1, "FORMAT_ND": 2,
        "FORMAT_NC1HWC0": 3, "FORMAT_FRACTAL_Z": 4, "FORMAT_NC1HWC0_C04": 12, "FORMAT_HWCN": 16,
        "FORMAT_NDHWC": 27, "FORMAT_FRACTAL_NZ": 29, "FORMAT_NCDHW": 30, "FORMAT_NDC1HWC0": 32,
        "FORMAT_FRACTAL_Z_3D": 33, "FORMAT_NC": 35, "FORMAT_NCL": 47,
    },
    module=__name__,
)  # fmt: skip


def torch_type_of(dtype) -> torch.dtype:
    """The torch.dtype of a DataType, of its number, or of itself."""
    if isinstance(dtype, torch.dtype):
        return dtype
    try:
        name = DataType(dtype).name
    except ValueError:
        raise ValueError(f"ge: {dtype!r} is neither a ge.DataType nor a torch.dtype") from None
    if name not in _TORCH:
        raise ValueError(f"ge: DataType.{name} has no torch.dtype, so no tensor can have it here")
    return _TORCH[name]


class _IsTensor(type):
    def __instancecheck__(cls, value) -> bool:
        return isinstance(value, torch.Tensor)


class Tensor(metaclass=_IsTensor):
    """The type of a converter's tensors. They are PyTorch's, and have these two besides."""

    index: int  # the place among the operands or results
    rank: int

    def __new__(cls):
        raise TypeError("ge.Tensor: tensors of a graph come from its operators; use ge.Const")


class TensorSpec:
    """A result of the operator that is converted: its dtype, rank and size."""

    def __init__(self, value: torch.Tensor):
        self._value = value
        self.dtype, self.rank, self.size = value.dtype, value.dim(), list(value.shape)

    def __getattr__(self, name: str):
        return getattr(self._value, name)

    def __repr__(self) -> str:
        return f"TensorSpec(dtype={self.dtype}, size={self.size})"


def described(value, index: int = 0):
    """`value` with what ge.Tensor has besides PyTorch's attributes."""
    if isinstance(value, torch.Tensor):
        value.rank, value.index = value.dim(), index
    return value


_converting = threading.local()


class on_device:
    """Where constants of the converters in the block are made."""

    def __init__(self, device: torch.device):
        self._device = device

    def __enter__(self):
        self._before = getattr(_converting, "device", None)
        _converting.device = self._device

    def __exit__(self, *_):
        _converting.device = self._before


def Const(v, dtype: int | None = None, node_name=None, readable=True):
    """A constant. Without `dtype` numbers are int64, float32 or bool, as Ascend's graphs have them."""
    if dtype is None:
        kinds = (torch.bool, torch.int64, torch.float32)
        flat = torch.as_tensor(v, device="cpu")
        chosen = kinds[0] if flat.dtype == kinds[0] else kinds[1 + flat.is_floating_point()]
        chosen = flat.dtype if flat.is_complex() else chosen
    else:
        chosen = torch_type_of(dtype)
    device = getattr(_converting, "device", None) or torch.device("npu")
    if isinstance(v, (bool, int, float, complex)):
        return described(torch.full((), v, dtype=chosen, device=device))
    return described(torch.tensor(v, dtype=chosen, device=device))


def Cast(x, *, dst_type: int, dependencies=[], node_name=None):  # noqa: B006 (TorchAir's)
    """`x` in another type."""
    wanted = torch_type_of(dst_type)
    _check_order("Cast", dependencies)
    if not isinstance(x, torch.Tensor):
        return described(Const(x, wanted) if isinstance(x, (bool, int)) else Const(x).to(wanted))
    return described(x.to(wanted))


def Clone(x, *, dependencies=[], node_name=None):  # noqa: B006 (TorchAir's)
    """A copy of `x`, which later writes into `x` do not change."""
    _check_order("Clone", dependencies)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"ge.Clone: x: expected a tensor, but got {type(x).__name__}")
    return described(x.clone())


def _check_order(name: str, dependencies) -> None:
    """Work of a graph runs in its order, so there is nothing to do for `dependencies`."""
    if not isinstance(dependencies, (list, tuple)) or not all(
        isinstance(d, torch.Tensor) for d in dependencies
    ):
        raise TypeError(
            f"ge.{name}: dependencies: expected a list of tensors, but got {dependencies!r}"
        )
