# SPDX-License-Identifier: Apache-2.0
"""Samples of calls for declare_supported: tensors by dtype and sizes."""

import torch

from torchair._converters import Support

__all__ = [
    "BF16",
    "BOOL",
    "C64",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "Support",
    "T",
]  # fmt: skip


class _TypedTensor:
    """A tensor of a sample call: its sizes, or its values."""

    dtype: torch.dtype

    def __init__(self, *dims: int, value_range=None):
        if value_range is not None and len(value_range) != 2:
            raise AssertionError(f"value_range: expected (least, most), but got {value_range!r}")
        self.dims, self.value_range, self.value = dims, value_range, None

    def __repr__(self) -> str:
        shown = self.dims if self.value is None else self.value
        limits = "" if self.value_range is None else f", value_range={self.value_range}"
        return f"Tensor({shown}, {self.dtype}{limits})"


def _typed(name: str, dtype: torch.dtype) -> type:
    return type(name, (_TypedTensor,), {"dtype": dtype, "__module__": __name__})


F16, F32, F64 = (
    _typed("F16", torch.float16),
    _typed("F32", torch.float32),
    _typed("F64", torch.float64),
)
BF16, C64, BOOL = (
    _typed("BF16", torch.bfloat16),
    _typed("C64", torch.complex64),
    _typed("BOOL", torch.bool),
)
I8, I16, I32 = _typed("I8", torch.int8), _typed("I16", torch.int16), _typed("I32", torch.int32)
I64, U8 = _typed("I64", torch.int64), _typed("U8", torch.uint8)


class T(_TypedTensor):
    """A tensor with these values."""

    def __init__(self, value, *, dtype: torch.dtype):
        super().__init__()
        self.value, self.dtype = value, dtype
