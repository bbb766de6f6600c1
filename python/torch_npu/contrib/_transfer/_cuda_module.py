# SPDX-License-Identifier: Apache-2.0
"""torch.cuda and its submodules, filled with torch.npu's functions."""

import torch
import torch.cuda.amp
import torch.cuda.nvtx

from torch_npu import npu

from ._devices import to_npu

# What torch.cuda calls differently.
_RENAMED = {
    "CUDAGraph": "NPUGraph",
    "CUDAPluggableAllocator": "NPUPluggableAllocator",
    "_CudaDeviceProperties": "_NPUDeviceProperties",
}
_PRIVATE = ("_lazy_init", "_lazy_call", "_is_in_bad_fork", "_exchange_device",
            "_maybe_exchange_device", "_sleep")  # fmt: skip


def patch() -> None:
    _fill(torch.cuda, npu, [*npu.__all__, *_PRIVATE])
    for name, ours in _RENAMED.items():
        setattr(torch.cuda, name, getattr(npu, ours))
    torch.cuda.is_initialized = npu.is_initialized
    torch.cuda._get_device_index = _cuda_device_index
    torch.cuda.get_device_capability = _capability
    _fill(torch.cuda.memory, npu.memory, [*npu.memory.__all__, "_snapshot", "_dump_snapshot",
                                          "_record_memory_history"])  # fmt: skip
    _fill(torch.cuda.random, npu.random, npu.random.__all__)
    _fill(torch.cuda.streams, npu.streams, ["Stream", "Event", "ExternalStream"])
    for module in (torch.cuda.amp, torch.cuda.amp.autocast_mode, torch.cuda.amp.grad_scaler):
        _fill(module, npu.amp, ["autocast", "custom_bwd", "custom_fwd", "GradScaler"])
    _fill(torch.cuda.nvtx, npu.mstx, ["mark", "range_push", "range_pop", "range_start",
                                      "range_end"])  # fmt: skip
    npu.Stream.cuda_stream = npu.Stream.npu_stream
    npu.Event.cuda_event = npu.Event.npu_event


def _fill(target, source, names) -> None:
    """Replaces what `target` has; strings that say cuda are read as npu on the way."""
    for name in names:
        ours = getattr(source, name, None)
        theirs = getattr(target, name, None)
        if ours is None or theirs is None or ours is theirs or isinstance(theirs, _MODULE):
            continue
        setattr(target, name, _reading_cuda(ours) if name in _TAKES_DEVICE else ours)


_MODULE = type(torch)
_TAKES_DEVICE = {
    "can_device_access_peer", "current_stream", "default_stream", "get_device_name",
    "get_device_properties", "get_rng_state", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved",
    "memory_stats", "memory_summary", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
    "set_device", "set_per_process_memory_fraction", "set_rng_state", "synchronize", "utilization",
}  # fmt: skip


def _reading_cuda(function):
    import functools

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*[to_npu(a) for a in args], **{k: to_npu(v) for k, v in kwargs.items()})

    return call


def _cuda_device_index(device, optional: bool = False, allow_cpu: bool = False) -> int:
    return npu._utils._get_device_index(to_npu(device), optional, allow_cpu)


def _capability(device=None) -> tuple[int, int]:
    """What CUDA programs compare with; 0.0 claims no CUDA feature."""
    import os

    return (
        npu.get_device_capability(device)
        if os.environ.get("TORCH_NPU_DEVICE_CAPABILITY")
        else (0, 0)
    )
