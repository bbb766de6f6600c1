# SPDX-License-Identifier: Apache-2.0
"""torch.cuda and its submodules, filled with torch.npu's functions."""

import os
from types import ModuleType

import torch
import torch.cuda.amp
import torch.cuda.nvtx

from torch_npu import _C, npu

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
    torch.cuda._get_device_index = npu._utils._get_device_index
    torch.cuda.get_device_capability = _capability
    _fill(torch.cuda.memory, npu.memory, [*npu.memory.__all__, "_snapshot", "_dump_snapshot",
                                          "_record_memory_history"])  # fmt: skip
    _fill(torch.cuda.random, npu.random, npu.random.__all__)
    _fill(torch.cuda.streams, npu.streams, ["Stream", "Event", "ExternalStream"])
    for module in (torch.cuda.amp, torch.cuda.amp.autocast_mode, torch.cuda.amp.grad_scaler):
        _fill(module, npu.amp, ["autocast", "custom_bwd", "custom_fwd", "GradScaler"])
    _fill(torch.cuda.nvtx, npu.mstx, ["mark", "range_push", "range_pop", "range_start",
                                      "range_end"])  # fmt: skip
    torch._C._host_emptyCache = _C._npu_hostEmptyCache
    npu.Stream.cuda_stream = npu.Stream.npu_stream
    npu.Event.cuda_event = npu.Event.npu_event


def _fill(target, source, names) -> None:
    """Replaces what `target` has. Devices in strings that say cuda go through torch.device,
    which reads them as npu by now."""
    for name in names:
        ours, theirs = getattr(source, name, None), getattr(target, name, None)
        if ours is not None and theirs is not None and not isinstance(theirs, ModuleType):
            setattr(target, name, ours)


def _capability(device=None) -> tuple[int, int]:
    """What CUDA programs compare with; 0.0 claims no CUDA feature."""
    if os.environ.get("TORCH_NPU_DEVICE_CAPABILITY"):
        return npu.get_device_capability(device)
    return 0, 0
