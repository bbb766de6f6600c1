# SPDX-License-Identifier: Apache-2.0
"""Mixed precision as apex offers it, on PyTorch's autocast and loss scaling kernels."""

from apex.amp._functions import (
    float_function,
    half_function,
    promote_function,
    register_float_function,
    register_half_function,
    register_promote_function,
)
from apex.amp._initialize import initialize
from apex.amp._scale_loss import disable_casts, scale_loss
from apex.amp._state import load_state_dict, master_params, state_dict

__all__ = [
    "disable_casts",
    "float_function",
    "half_function",
    "initialize",
    "load_state_dict",
    "master_params",
    "promote_function",
    "register_float_function",
    "register_half_function",
    "register_promote_function",
    "scale_loss",
    "state_dict",
]
