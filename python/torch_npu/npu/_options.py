# SPDX-License-Identifier: Apache-2.0
"""Switches of Ascend's compiler and libraries.

They are checked as torch_npu checks them and remembered; what has no meaning
for a driver other than Ascend's changes nothing.
"""

import os
from enum import IntEnum

from torch_npu import _C
from torch_npu.utils._error_code import ErrCode, pta_error

__all__ = [
    "CubeMathType", "are_compatible_impl_enabled", "finalize_dump", "get_mm_bmm_format_nd",
    "get_sync_debug_mode", "init_dump", "is_jit_compile_false", "set_aoe", "set_compile_mode",
    "set_deterministic_level", "set_dump", "set_mm_bmm_format_nd", "set_option",
    "set_sync_debug_mode", "use_compatible_impl",
]  # fmt: skip

_CHOICES = {
    "ACL_OP_SELECT_IMPL_MODE": ("high_performance", "high_precision"),
    "ACL_OP_DEBUG_LEVEL": ("0", "1", "2", "3", "4"),
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ALLOW_INTERNAL_FORMAT": ("enable", "disable"),
    "ALLOW_CONV_HF32": ("enable", "disable"),
    "ALLOW_MATMUL_HF32": ("enable", "disable"),
    "jitCompile": ("enable", "disable"),
}
_FREE_TEXT = {
    "ACL_AICORE_NUM",
    "ACL_DEBUG_DIR",
    "ACL_OP_COMPILER_CACHE_DIR",
    "ACL_OP_DEBUG_OPTION",
    "ACL_OPTYPELIST_FOR_IMPLMODE",
    "FORCE_ACLNN_OP_LIST",
    "MM_BMM_ND_ENABLE",
    "autotune",
    "aoe_config",
    "deviceId",
    "mdldumpconfig",
    "mdldumpswitch",
}


def _is_older_chip(name: str) -> bool:
    """Chips before the 910B keep weights in private formats unless told otherwise."""
    newer = ("Ascend910B", "Ascend910_", "Ascend950")
    return name.startswith("Ascend") and not name.startswith(newer)


_values = {
    "ALLOW_INTERNAL_FORMAT": "disable",
    "ALLOW_CONV_HF32": "enable",
    "ALLOW_MATMUL_HF32": "disable",
    "MM_BMM_ND_ENABLE": "enable",
    "jitCompile": "disable",
}


if _is_older_chip(os.environ.get("NPU_DEVICE_NAME", "")):
    _values["ALLOW_INTERNAL_FORMAT"] = "enable"
    _C._set_allow_internal_format(True)


def _check(name: str, value: str) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ValueError(
                f"value of {name} should be in {list(_CHOICES[name])}, but got {value!r}"
                + pta_error(ErrCode.VALUE)
            )
    elif name == "ACL_AICORE_NUM":
        from ._device import get_device_properties

        most = max(32, get_device_properties().cube_core_num)  # a 910B has at most 32
        if not value.isdigit() or not 0 < int(value) <= most:
            raise ValueError(
                f"value of ACL_AICORE_NUM should be in 1 to {most}, but got {value!r}"
                + pta_error(ErrCode.VALUE)
            )
    elif name not in _FREE_TEXT:
        raise RuntimeError(f"invalid npu option name:{name}" + pta_error(ErrCode.PARAM))


def set_option(option: dict) -> None:
    """Sets several switches; none is set when one of them is wrong."""
    if not isinstance(option, dict):
        raise TypeError("npu option must be a dict" + pta_error(ErrCode.TYPE))
    texts = {str(name): str(value) for name, value in option.items()}
    for name, value in texts.items():
        _check(name, value)
    _values.update(texts)
    if "ALLOW_INTERNAL_FORMAT" in texts:
        _C._set_allow_internal_format(texts["ALLOW_INTERNAL_FORMAT"] == "enable")


def set_compile_mode(jit_compile: bool = False) -> None:
    set_option({"jitCompile": "enable" if jit_compile else "disable"})


def is_jit_compile_false() -> bool:
    return _values["jitCompile"] == "disable"


def set_mm_bmm_format_nd(enabled: bool) -> None:
    set_option({"MM_BMM_ND_ENABLE": "enable" if enabled else "disable"})


def get_mm_bmm_format_nd() -> bool:
    return _values["MM_BMM_ND_ENABLE"] == "enable"


def set_aoe(dump_path: str) -> None:
    """Accepted for compatibility: there is no tuner to feed."""
    if not os.path.exists(dump_path):
        os.makedirs(dump_path)
    set_option({"autotune": "enable", "aoe_config": dump_path})


def init_dump() -> None:
    set_option({"mdldumpswitch": "enable"})


def set_dump(cfg_file: str) -> None:
    if not os.path.isfile(cfg_file):
        raise AssertionError(f"cfg_file {cfg_file!r} does not exist" + pta_error(ErrCode.NOT_FOUND))
    set_option({"mdldumpconfig": os.path.abspath(cfg_file)})


def finalize_dump() -> None:
    set_option({"mdldumpswitch": "disable"})


class _Switch:
    """An on/off option as an attribute."""

    def __init__(self, option: str):
        self._option = option

    def __get__(self, instance, owner=None) -> bool:
        return _values[self._option] == "enable"

    def __set__(self, instance, value: bool) -> None:
        set_option({self._option: "enable" if value else "disable"})


class _Config:
    allow_internal_format = _Switch("ALLOW_INTERNAL_FORMAT")


class CubeMathType(IntEnum):
    """How matrix units of Ascend compute: in the tensors' dtype, or in a narrower one."""

    UNDEFINED = -1
    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3
    USE_FP32_ADD = 4


class _CubeMathTypeOption:
    """Checked and remembered; drivers choose their own arithmetic."""

    def __init__(self):
        self._value = CubeMathType.UNDEFINED

    def __get__(self, instance, owner=None) -> CubeMathType:
        return self._value

    def __set__(self, instance, value: int) -> None:
        try:
            self._value = CubeMathType(value)
        except ValueError:
            names = ", ".join(f"{kind.name} ({kind.value})" for kind in CubeMathType)
            raise ValueError(
                f"matmul.cube_math_type should be one of {names}, but got {value!r}"
                + pta_error(ErrCode.VALUE)
            ) from None


class _Matmul:
    allow_hf32 = _Switch("ALLOW_MATMUL_HF32")
    cube_math_type = _CubeMathTypeOption()


class _Conv:
    allow_hf32 = _Switch("ALLOW_CONV_HF32")


config = _Config()
matmul = _Matmul()
conv = _Conv()

_deterministic_level = 0
_compatible_impl = False
_sync_debug_mode = 0
_SYNC_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_level(level: int) -> None:
    """0: as PyTorch's own switch says; 1 and 2 turn deterministic algorithms on."""
    global _deterministic_level
    import torch

    if level not in (0, 1, 2):
        raise ValueError(f"deterministic level should be 0, 1 or 2, but got {level!r}")
    _deterministic_level = level
    torch.use_deterministic_algorithms(level > 0)


def use_compatible_impl(is_enable: bool) -> None:
    global _compatible_impl
    _compatible_impl = bool(is_enable)


def are_compatible_impl_enabled() -> bool:
    return _compatible_impl or os.environ.get("TORCH_NPU_USE_COMPATIBLE_IMPL") == "1"


def set_sync_debug_mode(debug_mode) -> None:
    """0 "default", 1 "warn", 2 "error": remembered; drivers do not report implicit waits."""
    global _sync_debug_mode
    mode = _SYNC_DEBUG_MODES.get(debug_mode, debug_mode)
    if isinstance(mode, bool) or mode not in (0, 1, 2):
        allowed = "`default`, `warn`, `error`" if isinstance(debug_mode, str) else "0,1,2"
        raise RuntimeError(
            f"invalid value of debug_mode, expected one of {allowed}, but got {debug_mode!r}"
            + pta_error(ErrCode.PARAM)
        )
    _sync_debug_mode = mode


def get_sync_debug_mode() -> int:
    return _sync_debug_mode
