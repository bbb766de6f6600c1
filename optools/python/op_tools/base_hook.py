# SPDX-License-Identifier: Apache-2.0
"""op_tools.base_hook is a name of ditorch's; the hooks are in ditorch_compat."""

from op_tools.ditorch_compat.base_hook import BaseHook, DisableHookGuard
from op_tools.ditorch_compat.capture_hook import OpCaptureHook
from op_tools.ditorch_compat.compare_hook import OpAutoCompareHook
from op_tools.ditorch_compat.tool_hooks import (
    OpDtypeCastHook,
    OpFallbackHook,
    OpObserveHook,
    OpOverflowCheckHook,
    OpTimeMeasureHook,
)

__all__ = [
    "BaseHook",
    "DisableHookGuard",
    "OpAutoCompareHook",
    "OpCaptureHook",
    "OpDtypeCastHook",
    "OpFallbackHook",
    "OpObserveHook",
    "OpOverflowCheckHook",
    "OpTimeMeasureHook",
]
