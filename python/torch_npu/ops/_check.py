# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments: a message names argument, value and the allowed values, and ends with the code."""

import torch

from torch_npu import _dtypes

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INT4 = 285
# PyTorch's numbers, and torch_npu's own for those that PyTorch can store.
_NUMBERS = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64,
    5: torch.float16, 6: torch.float32, 7: torch.float64, 8: torch.complex32, 9: torch.complex64,
    10: torch.complex128, 11: torch.bool, 12: torch.int8, 13: torch.uint8, 14: torch.int32,
    15: torch.bfloat16, 16: INT4, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
    27: torch.uint16, 28: torch.uint32, 29: torch.uint64,
}  # fmt: skip
_NUMBERS |= {
    getattr(_dtypes, name): getattr(torch, name)
    for name in _dtypes.__all__
    if name not in ("int4", "uint1", "float8_e8m0fnu", "float4_e2m1fn_x2") and hasattr(torch, name)
}
_NUMBERS |= {INT4: INT4, _dtypes.bool: torch.bool}


def line_of(name: str) -> str:
    """The last line of a message, with the code of an error."""
    from torch_npu.utils._error_code import ErrCode, ops_error

    return ops_error(ErrCode[name])


def require(condition, text: str, code: str = "PARAM") -> None:
    """`code`: PARAM for shapes and arguments, TYPE for dtypes, VALUE for values."""
    if not condition:
        raise RuntimeError(text + line_of(code))


def unsupported(text: str):
    raise NotImplementedError(text + line_of("NOT_SUPPORT"))


def refuse_given(operator: str, **arguments) -> None:
    """Refuses arguments that the operator has on Ascend and not here, when they are given."""
    for name, value in arguments.items():
        if value is not None:
            unsupported(f"{operator}: argument {name} is not supported here: leave it out.")


def dtype_of(number: int | None, default, operator: str, argument: str = "dst_type"):
    """A torch.dtype, or INT4, for an `int` argument that means a dtype."""
    if number is None:
        return default
    require(
        number in _NUMBERS,
        f"{operator}: {argument} is {number}, which is not a known dtype.",
        "TYPE",
    )
    return _NUMBERS[number]


def floating(operator: str, **tensors) -> None:
    """Each is float16, bfloat16, float32 or float64; None passes."""
    for name, x in tensors.items():
        if x is not None and x.dtype not in _FLOATS:
            text = f"{operator}: {name} is {x.dtype}; allowed: float16, bfloat16, float32, float64."
            require(False, text, "TYPE")


def same_dtype(operator: str, **tensors) -> None:
    """The tensors have one dtype among the floating ones."""
    floating(operator, **tensors)
    (first, x), *rest = tensors.items()
    for name, other in rest:
        require(
            other.dtype == x.dtype,
            f"{operator}: {name} is {other.dtype}; it must be {first}'s {x.dtype}.",
            "TYPE",
        )


def shapes(operator: str, **expected) -> None:
    """Each argument is (tensor, the shape it must have); an absent tensor passes."""
    for name, (x, shape) in expected.items():
        if x is not None and list(x.shape) != list(shape):
            require(
                False,
                f"{operator}: {name} has shape {list(x.shape)}; allowed: {list(shape)}.",
            )


def dimensions(operator: str, count: int, **tensors) -> None:
    for name, x in tensors.items():
        require(
            x is None or x.dim() == count,
            f"{operator}: {name} has shape {None if x is None else list(x.shape)}; allowed: {count} "
            "dimensions.",
        )


def elements(operator: str, counts, **tensors) -> None:
    """Each has one of the numbers of elements; None passes."""
    for name, x in tensors.items():
        require(
            x is None or x.numel() in counts,
            f"{operator}: {name} has shape {None if x is None else list(x.shape)}; allowed numbers of "
            f"elements: {', '.join(str(c) for c in counts)}.",
        )


def wide(x: torch.Tensor) -> torch.Tensor:
    """What arithmetic is done in: float32, or float64 as it comes."""
    return x if x.dtype == torch.float64 else x.float()


def known(x) -> bool:
    """Whether the numbers of a tensor can be read: not while tracing or while a graph is captured."""
    if type(x) is not torch.Tensor or x.device.type == "meta":
        return False
    return x.device.type != "npu" or not torch.npu.is_current_stream_capturing()


def within(operator: str, argument: str, x: torch.Tensor, low: int, high: int) -> None:
    """Integers from low to high; checked where they can be read."""
    if known(x) and x.numel():
        least, most = int(x.min()), int(x.max())
        require(
            low <= least and most <= high,
            f"{operator}: {argument} holds numbers from {least} to {most}; allowed: {low} to {high}.",
            "VALUE",
        )
