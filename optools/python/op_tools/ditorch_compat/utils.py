# SPDX-License-Identifier: Apache-2.0
"""ditorch's op_tools.utils: the helpers scripts import from here, under its names."""

from __future__ import annotations

import gc
import os
import re
import traceback

import torch

from op_tools.core import options
from op_tools.core.containers import is_cpu_op, to_device, transform_contrainer, traverse_container
from op_tools.core.dotted_names import get_function_from_string
from op_tools.ditorch_compat.comparing import (
    compare_result,
    compute_tensor_features,
    get_error_tolerance,
    is_inf_or_nan,
    tensor_allclose,
    tensor_cos_similarity,
    tensor_max_diff,
)
from op_tools.ditorch_compat.op_names import (
    RANDOM_NUMBER_GEN_OPS,
    VIEW_OPS,
    is_dtype_cast_op,
    is_inplace_op,
    is_random_number_gen_op,
    is_view_op,
)

__all__ = [
    "RANDOM_NUMBER_GEN_OPS",
    "VIEW_OPS",
    "compare_result",
    "compute_tensor_features",
    "current_location",
    "garbage_collect",
    "get_dtype_cast_dict_form_str",
    "get_error_tolerance",
    "get_function_from_string",
    "get_option",
    "is_cpu_op",
    "is_dtype_cast_op",
    "is_inf_or_nan",
    "is_inplace_op",
    "is_opname_match",
    "is_random_number_gen_op",
    "is_view_op",
    "set_option_if_empty",
    "tensor_allclose",
    "tensor_cos_similarity",
    "tensor_max_diff",
    "to_device",
    "transform_contrainer",
    "traverse_container",
]

_given: dict[str, str] = {}  # set_option_if_empty(): ours alone, no child inherits it


def is_opname_match(name: str | None, op_pattern: str | None = None) -> bool:
    """Is the whole name one of the pattern's pieces, or matched by one as an expression?"""
    if name is None:
        return False
    if op_pattern is None:
        return True
    for piece in (part.strip() for part in op_pattern.split(",")):
        if piece == name:
            return True
        try:
            if piece and re.fullmatch(piece, name):
                return True
        except re.error as error:
            raise ValueError(f"{piece!r} is no regular expression: {error}") from None
    return False


def get_dtype_cast_dict_form_str(config: str | None) -> dict[torch.dtype, torch.dtype]:
    """`torch.float16->torch.float32, ...` -> a dict."""
    from op_tools.tools.dtype_cast import parse_dtypes

    return {} if config is None else parse_dtypes(config, "dtype cast")


def _is_library(path: str) -> bool:
    packages = os.path.dirname(os.path.dirname(torch.__file__)) + os.sep
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    name = path.removeprefix(packages) if path.startswith(packages) else ""
    return path.startswith(ours) or name.startswith(("torch" + os.sep, "torch_"))


def current_location(
    name: str | None = None, stack_depth: int = -1, print_stack: bool = False
) -> str:
    """`file:line function: source` of the innermost user frame; -2: of the caller."""
    stack = traceback.extract_stack()
    if print_stack or options.number("OP_TOOLS_PRINT_STACK", 0) > 0:
        print(f"{name or ''}\n{''.join(traceback.format_list(stack[:-1]))}")
    if stack_depth < -1:
        frame = stack[stack_depth]
    else:
        users = [frame for frame in stack if not _is_library(frame.filename)]
        frame = users[-1] if users else stack[0]
    return f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line}"


def get_option(name: str, default: str | None = None) -> str | None:
    """The variable as it is now, else what set_option_if_empty() gave, else the default."""
    value = os.environ.get(name) or _given.get(name, default)
    return None if value is None else options.text(name, value)


def set_option_if_empty(name: str, value: str) -> None:
    """A default for get_option() in this process; the environment stays as it is."""
    _given.setdefault(name, value)


def garbage_collect() -> None:
    """Collects when Python's own collector is off."""
    if not gc.isenabled():
        gc.collect()
