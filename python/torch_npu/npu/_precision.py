# SPDX-License-Identifier: Apache-2.0
"""Autocast and attention switches, and the overflow flag."""

import warnings

import torch

__all__ = [
    "clear_npu_overflow_flag", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp",
    "flash_sdp_enabled", "get_amp_supported_dtype", "get_autocast_dtype", "get_npu_overflow_flag",
    "is_autocast_enabled", "is_support_inf_nan", "math_sdp_enabled", "mem_efficient_sdp_enabled",
    "npu_check_overflow", "sdp_kernel", "set_autocast_dtype", "set_autocast_enabled",
]  # fmt: skip


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16, torch.float32]


def is_autocast_enabled() -> bool:
    return torch.is_autocast_enabled("npu")


def set_autocast_enabled(enable: bool) -> None:
    torch.set_autocast_enabled("npu", enable)


def get_autocast_dtype() -> torch.dtype:
    return torch.get_autocast_dtype("npu")


def set_autocast_dtype(dtype: torch.dtype) -> None:
    torch.set_autocast_dtype("npu", dtype)


# Values overflow to inf and nan as in IEEE 754; no device flag exists.


def is_support_inf_nan() -> bool:
    return True


def npu_check_overflow(grad) -> bool:
    """Whether a number or tensor holds inf or nan."""
    if isinstance(grad, torch.Tensor):
        return not bool(torch.isfinite(grad).all())
    return grad != grad or grad in (float("inf"), float("-inf"))


def get_npu_overflow_flag() -> bool:
    """Always False: look at the values, with npu_check_overflow."""
    return False


def clear_npu_overflow_flag() -> None:
    """Nothing to clear."""


def _sdp_switch(name: str):
    backend = getattr(torch.backends.cuda, name)

    def switch(*args, **kwargs):
        warnings.warn(f"torch.npu.{name} is torch.backends.cuda.{name}.", stacklevel=2)
        return backend(*args, **kwargs)

    switch.__name__ = switch.__qualname__ = name
    return switch


enable_flash_sdp = _sdp_switch("enable_flash_sdp")
enable_math_sdp = _sdp_switch("enable_math_sdp")
enable_mem_efficient_sdp = _sdp_switch("enable_mem_efficient_sdp")
flash_sdp_enabled = _sdp_switch("flash_sdp_enabled")
math_sdp_enabled = _sdp_switch("math_sdp_enabled")
mem_efficient_sdp_enabled = _sdp_switch("mem_efficient_sdp_enabled")
sdp_kernel = _sdp_switch("sdp_kernel")
