# SPDX-License-Identifier: Apache-2.0
"""Device and pinned memory: statistics, cached blocks, and how to free them."""

import collections
from typing import Any

import torch

from torch_npu import _C
from torch_npu.utils._error_code import ErrCode, pta_error

from ._device import _lazy_init, mem_get_info
from ._memory_history import _dump_snapshot, _record_memory_history, _snapshot  # noqa: F401
from ._memory_pools import (
    MemPool,
    NPUPluggableAllocator,
    change_current_allocator,
    get_allocator_backend,
    use_mem_pool,
)
from ._memory_summary import format_summary
from ._utils import Device, _get_device_index

__all__ = [
    "MemPool", "NPUPluggableAllocator", "caching_allocator_alloc", "caching_allocator_delete",
    "change_current_allocator", "empty_cache", "empty_virt_addr_cache", "get_allocator_backend",
    "get_per_process_memory_fraction", "host_empty_cache", "host_memory_stats",
    "host_memory_stats_as_nested_dict", "list_gpu_processes", "max_memory_allocated",
    "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached",
    "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats",
    "reset_peak_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
]  # fmt: skip


def _checked_index(device: Device) -> int:
    """The index of an existing device, in the words of PyTorch's allocators."""
    index = _get_device_index(device, optional=True)
    if not 0 <= index < _C._device_count():
        raise RuntimeError(
            f"Invalid device argument {index}: this process sees {_C._device_count()} npu devices"
            + pta_error(ErrCode.PARAM)
        )
    return index


def empty_cache() -> None:
    """Returns unused cached memory to the driver."""
    if _C._is_initialized():
        _C._empty_cache()


def empty_virt_addr_cache() -> None:
    """The same: addresses and memory are not kept apart here."""
    empty_cache()


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Counters as the allocator has them; empty before the device is used."""
    if not _C._is_initialized():
        return {}
    return _C._memory_stats(_checked_index(device))


def memory_stats(device: Device = None) -> dict[str, Any]:
    """The same under torch.cuda's dotted names: "allocated_bytes.all.peak"."""
    return _flatten(memory_stats_as_nested_dict(device))


def _flatten(nested: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    walk("", nested)
    return collections.OrderedDict(sorted(flat.items()))


def _bytes(device: Device, kind: str, when: str) -> int:
    return memory_stats_as_nested_dict(device).get(kind, {}).get("all", {}).get(when, 0)


def memory_allocated(device: Device = None) -> int:
    return _bytes(device, "allocated_bytes", "current")


def max_memory_allocated(device: Device = None) -> int:
    return _bytes(device, "allocated_bytes", "peak")


def memory_reserved(device: Device = None) -> int:
    return _bytes(device, "reserved_bytes", "current")


def max_memory_reserved(device: Device = None) -> int:
    return _bytes(device, "reserved_bytes", "peak")


def memory_cached(device: Device = None) -> int:
    """Old name of memory_reserved."""
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Old name of max_memory_reserved."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: Device = None) -> None:
    _lazy_init()
    _C._reset_peak_memory_stats(_checked_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    _lazy_init()
    _C._reset_accumulated_memory_stats(_checked_index(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """Old name of reset_peak_memory_stats."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Old name of reset_peak_memory_stats."""
    reset_peak_memory_stats(device)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The counters as a table to print."""
    _lazy_init()
    index = _checked_index(device)
    return format_summary(index, memory_stats(index), abbreviated)


def memory_snapshot() -> list[dict[str, Any]]:
    """Every segment of device memory and the blocks in it."""
    return _snapshot()["segments"]


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Limits this process to a share of the device's memory."""
    if not isinstance(fraction, float):
        raise TypeError(
            "Invalid type for fraction argument, must be `float`" + pta_error(ErrCode.TYPE)
        )
    if not 0 <= fraction <= 1:
        raise ValueError(
            f"Invalid fraction value: {fraction}. Allowed range: 0~1" + pta_error(ErrCode.VALUE)
        )
    _lazy_init()
    _C._set_memory_fraction(fraction, _checked_index(device))


def get_per_process_memory_fraction(device: Device = None) -> float:
    _lazy_init()
    return _C._get_memory_fraction(_checked_index(device))


def caching_allocator_alloc(size: int, device: Device = None, stream=None) -> int:
    """A block of device memory as an address, for code outside PyTorch."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"npu: caching_allocator_alloc: {size!r} is not a number of bytes.")
    index = _checked_index(device)
    if stream is None:
        stream = torch.npu.current_stream(index)
    if not isinstance(stream, (torch.Stream, int)):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.npu.Stream` or an `int` stream id"
            + pta_error(ErrCode.TYPE)
        )
    stream_id = stream.stream_id if isinstance(stream, torch.Stream) else stream
    return _C._allocate_raw(size, index, stream_id)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees what caching_allocator_alloc gave."""
    _C._free_raw(mem_ptr)


def list_gpu_processes(device: Device = None) -> str:
    """Who uses the device: drivers know this process only."""
    import os

    index = _checked_index(device)
    used = memory_reserved(index) / 2**20
    return f"NPU:{index}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB NPU memory"


def host_empty_cache() -> None:
    """Gives cached pinned memory back to the system."""
    if _C._is_initialized():
        _C._npu_hostEmptyCache()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    return _C._host_memory_stats() if _C._is_initialized() else {}


def host_memory_stats() -> dict[str, Any]:
    return _flatten(host_memory_stats_as_nested_dict())


def reset_accumulated_host_memory_stats() -> None:
    _lazy_init()
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    _lazy_init()
    _C._reset_peak_host_memory_stats()


def _set_allocator_settings(env: str) -> None:
    """Changes options of PYTORCH_NPU_ALLOC_CONF while the program runs."""
    _lazy_init()
    _C._set_allocator_settings(env)


def _time_allocate_free(size: int, count: int) -> float:
    """Nanoseconds of one allocation and its release, without Python in the loop."""
    _lazy_init()
    return _C._time_allocate_free(size, count)
