# SPDX-License-Identifier: Apache-2.0
"""The module programs import device and stream functions from; they are torch.npu's."""

# ruff: noqa: F401, F403
from torch_npu.utils import get_cann_version

from . import _device, _precision
from ._device import *
from ._device import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _maybe_exchange_device,
)
from ._options import (
    finalize_dump,
    get_sync_debug_mode,
    init_dump,
    set_dump,
    set_sync_debug_mode,
)
from ._precision import (
    clear_npu_overflow_flag,
    get_npu_overflow_flag,
    is_support_inf_nan,
    npu_check_overflow,
)
from ._utils import _get_device_index
from .streams import StreamContext, current_stream, default_stream, set_stream, stream


def _is_gte_cann_version(version: str, module: str = "CANN") -> bool:
    from torch_npu import _private_names

    return _private_names._is_gte_cann_version(version, module)


__all__ = [
    *_device.__all__, "StreamContext", "clear_npu_overflow_flag", "current_stream",
    "default_stream", "finalize_dump", "get_cann_version", "get_npu_overflow_flag", "get_sync_debug_mode", "init_dump",
    "is_support_inf_nan", "npu_check_overflow", "set_dump", "set_stream", "set_sync_debug_mode",
    "stream",
]  # fmt: skip
