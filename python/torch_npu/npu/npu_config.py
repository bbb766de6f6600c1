# SPDX-License-Identifier: Apache-2.0
"""The module programs import switches from; they live in torch.npu."""

from ._device import get_device_limit, set_device_limit
from ._options import (
    CubeMathType,
    config,
    conv,
    finalize_dump,
    get_mm_bmm_format_nd,
    init_dump,
    is_jit_compile_false,
    matmul,
    set_aoe,
    set_compile_mode,
    set_deterministic_level,
    set_dump,
    set_mm_bmm_format_nd,
    set_option,
    use_compatible_impl,
)

__all__ = [
    "CubeMathType", "config", "conv", "finalize_dump", "get_device_limit", "get_mm_bmm_format_nd",
    "init_dump", "is_jit_compile_false", "matmul", "set_aoe", "set_compile_mode",
    "set_deterministic_level", "set_device_limit", "set_dump", "set_mm_bmm_format_nd",
    "set_option", "use_compatible_impl",
]  # fmt: skip
