# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments: the sentence names argument, value and what is allowed; the code ends it."""

import torch

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Numbers of dtypes that PyTorch has no name for, beside torch_npu's own for those it has.
INT4 = 285
_NUMBERS = {
    1: torch.int8, 3: torch.int32, 5: torch.float16, 6: torch.float32, 12: torch.int8,
    13: torch.uint8, 14: torch.int32, 15: torch.bfloat16, 16: INT4, 23: torch.float8_e5m2,
    24: torch.float8_e4m3fn, 256: torch.float32, 257: torch.float16, 258: torch.int8,
    259: torch.int32, 260: torch.uint8, 262: torch.int16, 265: torch.int64, 267: torch.float64,
    268: torch.bool, 283: torch.bfloat16, INT4: INT4, 291: torch.float8_e5m2,
    292: torch.float8_e4m3fn, 0: torch.uint8, 2: torch.int16, 4: torch.int64, 7: torch.float64,
    11: torch.bool,
}  # fmt: skip


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
        f"{operator}: {argument} is {number}, which is no dtype known here.",
        "TYPE",
    )
    return _NUMBERS[number]


def floating(operator: str, **tensors) -> None:
    """Each is float16, bfloat16, float32 or float64; None passes."""
    for name, x in tensors.items():
        require(
            x is None or x.dtype in _FLOATS,
            f"{operator}: {name} is {x if x is None else x.dtype}; allowed: float16, bfloat16, "
            "float32, float64.",
            "TYPE",
        )


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


def wide(x: torch.Tensor) -> torch.Tensor:
    """What arithmetic is done in: float32, or float64 as it comes."""
    return x if x.dtype == torch.float64 else x.float()
