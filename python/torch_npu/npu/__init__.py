# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401, F403
"""torch.npu: devices, streams, memory, random numbers and switches of the npu device."""

import importlib as _importlib

import torch as _torch

from torch_npu import _C

from . import (
    _utils,
    aclnn,
    amp,
    backends,
    deterministic,
    memory,
    mstx,
    npu_config,
    nvtx,
    random,
    utils,
)
from ._device import *
from ._device import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _maybe_exchange_device,
    _NPUDeviceProperties,
    _sleep,
)
from ._fallback import *
from ._later import *
from ._options import *
from ._options import config, conv, matmul
from ._precision import *
from ._types import *
from ._utils import _get_device_index
from .deterministic import *
from .graphs import *
from .memory import *
from .random import *
from .random import default_generators
from .streams import *

from . import _device, _fallback, _later, _options, _precision, _types, graphs, streams  # isort: skip

OutOfMemoryError = _torch.OutOfMemoryError

__all__ = sorted({
    "OutOfMemoryError", "aclnn", "amp", "backends", "config", "conv", "default_generators",
    "graphs", "matmul", "memory", "mstx", "npu_config", "npurt", "nvtx", "random", "streams", "utils",
    *deterministic.__all__, *_device.__all__, *_fallback.__all__, *_later.__all__, *graphs.__all__, *memory.__all__,
    *_options.__all__, *_precision.__all__, *random.__all__, *streams.__all__, *_types.__all__,
})  # fmt: skip


def npurt():
    """The few functions of Ascend's runtime that programs call themselves; 0 means success."""
    _lazy_init()
    return _C._npurt


def __getattr__(name: str):
    # torch.utils.checkpoint saves the device's random state only where this is true.
    if name == "_initialized":
        return _C._is_initialized()
    # The first loads PyTorch's compiler, the second PyTorch's sanitizer.
    if name in ("npugraph_ex", "_sanitizer"):
        return _importlib.import_module(f"torch_npu.npu.{name}")
    raise AttributeError(f"module 'torch.npu' has no attribute '{name}'")
