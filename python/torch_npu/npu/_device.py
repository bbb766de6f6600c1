# SPDX-License-Identifier: Apache-2.0
"""Devices: their number, the current one, their properties."""

import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

from torch_npu import _C
from torch_npu.utils._error_code import ErrCode, pta_error

from ._utils import Device, _checked_index, _get_device_index

__all__ = [
    "can_device_access_peer", "current_blas_handle", "current_device", "device", "device_count",
    "device_of", "get_device_capability", "get_device_limit", "get_device_name",
    "get_device_properties", "get_soc_version", "get_stream_limit", "init", "ipc_collect",
    "is_available", "is_bf16_supported", "is_initialized", "mem_get_info", "reset_stream_limit",
    "set_device", "set_device_limit", "set_op_timeout_ms", "set_stream_limit", "synchronize",
    "utilization",
]  # fmt: skip

_lock = threading.RLock()
# Calls made before the device was needed: (callable, sets every seed).
_queued: list[tuple[Callable[[], None], bool]] = []


def _constant(function: Callable) -> Callable:
    """Marks what stays the same while a program runs: torch.compile asks once, and goes on."""
    function._dynamo_marked_constant = True
    return function


@_constant
def is_available() -> bool:
    return _C._device_count() > 0


@_constant
def device_count() -> int:
    return _C._device_count()


def init() -> None:
    """Opens the driver. Any use of the device does it too."""
    _lazy_init()


def is_initialized() -> bool:
    return _C._is_initialized() and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    return _C._in_bad_fork()


def _lazy_init() -> None:
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, "
            "you must use the 'spawn' start method"
        )
    if is_initialized() and not _queued:
        return
    with _lock:
        _check_settings()
        _C._init()
        while _queued:
            call, _ = _queued.pop(0)
            call()


def _check_settings() -> None:
    """NPU_FALLBACK and NPU_PROFILE are read by the first operator that asks; a wrong value is told before."""
    if not _C._is_initialized() and not _C._driver_info().get("failure"):
        _C._fallback_policy()
        _C._profile_info()


def _lazy_call(call: Callable[[], None], seeds_all: bool = False, **_ignored) -> None:
    """Runs `call` now, or when the device is first used."""
    with _lock:
        if is_initialized() and not _queued:
            call()
            return
        if seeds_all:  # earlier ones would be overwritten: a loop of seeds stays one entry
            _queued[:] = [entry for entry in _queued if not entry[1]]
        _queued.append((call, seeds_all))


def set_device(device: Device) -> None:
    index = _get_device_index(device)
    if index >= 0:
        _lazy_init()
        _C._set_device(index)


def current_device() -> int:
    _lazy_init()
    return _C._get_device()


def synchronize(device: Device = None) -> None:
    """Waits for all work on all streams of the device."""
    _lazy_init()
    _C._synchronize(_checked_index(device))


class device:
    """Context manager that makes a device the current one; None or a negative index: no change."""

    def __init__(self, device: Any):
        self.idx = _get_device_index(device, optional=True) if device is not None else -1
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            _lazy_init()
        self.prev_idx = _C._exchange_device(self.idx)
        return self

    def __exit__(self, kind, value, traceback):
        self.idx = _C._exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager for the device of a tensor or storage; nothing for one elsewhere."""

    def __init__(self, obj):
        super().__init__(obj.device if obj.device.type == "npu" else None)


def _exchange_device(index: int) -> int:
    return _C._exchange_device(index)


def _maybe_exchange_device(index: int) -> int:
    return _C._exchange_device(index)


class _UUID:
    """36 characters as text, 16 as `.bytes`."""

    def __init__(self, raw: bytes):
        self.bytes = raw

    def __str__(self) -> str:
        return str(uuid.UUID(bytes=self.bytes))

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other) -> bool:
        return isinstance(other, _UUID) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)


class _NPUDeviceProperties:
    """What get_device_properties gives; fields an npu does not have are None."""

    major = None
    minor = None
    is_multi_gpu_board = None
    is_integrated = None
    max_threads_per_multi_processor = None
    warp_size = None
    regs_per_multiprocessor = None
    gcnArchName = None

    def __init__(self, raw: dict):
        chosen = os.environ.get("NPU_DEVICE_NAME") or _C._profile_device_name()
        self.name = chosen or raw["name"]
        self.total_memory = raw["total_memory"]
        self.cube_core_num = raw["compute_units"]
        self.vector_core_num = raw["compute_units"]
        self.multi_processor_count = raw["compute_units"]
        self.L2_cache_size = 0
        self.uuid = _UUID(raw["uuid"])

    def __repr__(self) -> str:
        return (
            f"_NPUDeviceProperties(name='{self.name}', "
            f"total_memory={self.total_memory // 2**20}MB, cube_core_num={self.cube_core_num}, "
            f"vector_core_num={self.vector_core_num}, uuid={self.uuid}, "
            f"L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


def get_device_properties(device: Device = None) -> _NPUDeviceProperties:
    """Properties of a device. Opens nothing."""
    return _NPUDeviceProperties(_C._device_properties(_checked_index(device)))


@_constant
def get_device_name(device: Device = None) -> str:
    """NPU_DEVICE_NAME, else the profile's name for its device, else the driver's. Opens nothing."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int] | None:
    """TORCH_NPU_DEVICE_CAPABILITY="M.m" as a pair; without it, or spelt otherwise, None and a
    warning."""
    import warnings

    text = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
    major, _, minor = text.partition(".")
    if major.isdecimal() and minor.isdecimal():
        return int(major), int(minor)
    why = "NPU does not support get_device_capability."
    if text:
        why = f"TORCH_NPU_DEVICE_CAPABILITY={text!r} is not of the form major.minor, like 8.0."
    warnings.warn(why, stacklevel=2)
    return None


_SOC_VERSIONS = {
    "Ascend910PremiumA": 100, "Ascend910ProA": 101, "Ascend910A": 102, "Ascend910ProB": 103,
    "Ascend310P1": 200, "Ascend310P2": 201, "Ascend310P3": 202, "Ascend310P4": 203,
    "Ascend910B1": 220, "Ascend910B2": 221, "Ascend910B2C": 222, "Ascend910B3": 223,
    "Ascend910B4": 224, "Ascend910B4-1": 225, "Ascend910_9391": 250, "Ascend910_9392": 251,
    "Ascend910_9381": 252, "Ascend910_9382": 253, "Ascend910_9372": 254, "Ascend910_9362": 255,
}  # fmt: skip


@_constant
def get_soc_version() -> int:
    """Ascend's number for the chip the device calls itself; -1 for any other."""
    name = get_device_name()
    return 260 if name.startswith("Ascend950") else _SOC_VERSIONS.get(name, -1)


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether `device` reads the memory of `peer_device` directly; False for itself."""
    _lazy_init()
    first = _get_device_index(device, optional=True)
    second = _get_device_index(peer_device)
    for index, which in ((first, "device"), (second, "peer device")):
        if not 0 <= index < device_count():
            raise AssertionError(
                f"Invalid {which} id {index}: this process sees {device_count()} npu devices"
                + pta_error(ErrCode.PARAM)
            )
    return _C._can_access_peer(first, second)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Bytes free and in all, as the device sees them."""
    _lazy_init()
    return _C._memory_info(_checked_index(device))


def utilization(device: Device = None) -> int:
    """How busy the device is, in percent: for one that is this computer's CPU, its load."""
    if not _C._device_properties(_checked_index(device))["integrated"]:
        raise NotImplementedError("torch.npu.utilization: the driver does not report it.")
    return min(100, int(100 * os.getloadavg()[0] / (os.cpu_count() or 1)))


@_constant
def is_bf16_supported(including_emulation: bool = True) -> bool:
    return is_available()


def current_blas_handle() -> None:
    import warnings

    warnings.warn("NPU does not use blas handle.", stacklevel=2)


def ipc_collect() -> None:
    """Nothing to collect: device memory is not shared between processes."""


def set_op_timeout_ms(timeout: int) -> None:
    """Accepted for compatibility: operators have no time limit here."""
    if isinstance(timeout, bool) or not isinstance(timeout, int):
        raise TypeError(
            f"set_op_timeout_ms: expected an int, but got {type(timeout).__name__}"
            + pta_error(ErrCode.TYPE)
        )
    if timeout < 0:
        raise ValueError(
            f"set_op_timeout_ms: expected a number of milliseconds from 0 on, but got {timeout}"
            + pta_error(ErrCode.VALUE)
        )


# Core limits, kept and given back; the drivers share their cores themselves.
_device_limits: dict[int, dict[str, int]] = {}
_stream_limits: dict[tuple[int, int], dict[str, int]] = {}


def _cores(device: int) -> dict[str, int]:
    properties = get_device_properties(device)
    return {
        "cube_core_num": properties.cube_core_num,
        "vector_core_num": properties.vector_core_num,
    }


def _checked_limit(what: str, most: int, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}: expected an int, but got {type(value).__name__}")
    if value != -1 and not 0 < value <= most:
        raise ValueError(f"{what}={value}: expected -1 (all) or 1 to {most}")
    return most if value == -1 else value


def _limits(device: int, cube_num: int, vector_num: int) -> dict[str, int]:
    all_cores = _cores(device)
    return {
        "cube_core_num": _checked_limit("cube_num", all_cores["cube_core_num"], cube_num),
        "vector_core_num": _checked_limit("vector_num", all_cores["vector_core_num"], vector_num),
    }


def _named_index(device: Device) -> int:
    """An existing device that is named: a limit is never meant for "whichever is current"."""
    index = _get_device_index(device)
    _C._check_device_index(index)
    return index


def set_device_limit(device: Device, cube_num: int = -1, vector_num: int = -1) -> None:
    """Limits the cores a process uses on a device; once per device."""
    index = _named_index(device)
    if index in _device_limits:
        raise RuntimeError(f"torch.npu.set_device_limit: the limit of npu:{index} is already set.")
    _device_limits[index] = _limits(index, cube_num, vector_num)


def get_device_limit(device: Device) -> dict[str, int]:
    index = _named_index(device)
    return dict(_device_limits.get(index) or _cores(index))


def set_stream_limit(stream, cube_num: int = -1, vector_num: int = -1) -> None:
    limits = _limits(stream.device_index, cube_num, vector_num)
    _stream_limits[stream.device_index, stream.stream_id] = limits


def get_stream_limit(stream) -> dict[str, int]:
    limits = _stream_limits.get((stream.device_index, stream.stream_id))
    return dict(limits or get_device_limit(stream.device_index))


def reset_stream_limit(stream) -> None:
    _stream_limits.pop((stream.device_index, stream.stream_id), None)


def _sleep(cycles: int) -> None:
    """Keeps the current stream busy for `cycles` nanoseconds (tests of asynchrony)."""
    _lazy_init()
    _C._sleep(int(cycles))
