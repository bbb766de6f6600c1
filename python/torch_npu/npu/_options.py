# SPDX-License-Identifier: Apache-2.0
"""Switches of Ascend's compiler and libraries.

They are checked as torch_npu checks them and remembered; options without meaning
for a driver other than Ascend's changes nothing.
"""

import os
import sys
import warnings
from enum import IntEnum

import torch

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
    "ACL_PRECISION_MODE": "must_keep_origin_dtype",
    "ALLOW_INTERNAL_FORMAT": "disable",
    "ALLOW_CONV_HF32": "enable",
    "ALLOW_MATMUL_HF32": "disable",
    "MM_BMM_ND_ENABLE": "enable",
    "jitCompile": "disable",
}


if _is_older_chip(os.environ.get("NPU_DEVICE_NAME", "")):
    _values["ACL_PRECISION_MODE"] = "allow_fp32_to_fp16"
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
    _C._set_allow_hf32(matmul.allow_hf32, conv.allow_hf32)


def get_option(name: str) -> str | None:
    """The value of a switch that was set or has a default."""
    if name == "CUBE_MATH_TYPE":
        kind = matmul.cube_math_type
        return None if kind is CubeMathType.UNDEFINED else str(int(kind))
    return _values.get(name)


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
_LIBRARIES = tuple(
    os.path.join(os.path.dirname(os.path.abspath(package.__file__)), "") for package in (torch, _C)
)
_SYNC_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_level(level: int) -> None:
    """0: as PyTorch's own switch says; 1 and 2 turn deterministic algorithms on."""
    global _deterministic_level
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
    """What an operator does that makes the host wait for the device: item(), nonzero(), x[mask], .cpu(), ...

    0 "default": nothing, 1 "warn": warns with the caller's line, 2 "error": raises before it waits. What a
    program asks for by name (synchronize(), wait()) is not reported. The same on every driver.
    """
    mode = _SYNC_DEBUG_MODES.get(debug_mode, debug_mode)
    if isinstance(mode, bool) or mode not in (0, 1, 2):
        allowed = "`default`, `warn`, `error`" if isinstance(debug_mode, str) else "0,1,2"
        raise RuntimeError(
            f"invalid value of debug_mode, expected one of {allowed}, but got {debug_mode!r}"
            + pta_error(ErrCode.PARAM)
        )
    _C._set_sync_debug_mode(mode, _warn_of_wait)


def _warn_of_wait(text: str) -> None:
    """At the caller's line, however deep in PyTorch the operator is; once a line, as filters say."""
    frame = innermost = sys._getframe(1) if sys._getframe().f_back else sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    frame = frame or innermost
    warnings.warn_explicit(
        text, UserWarning, frame.f_code.co_filename, frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def get_sync_debug_mode() -> int:
    return _C._get_sync_debug_mode()
