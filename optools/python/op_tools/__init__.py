# SPDX-License-Identifier: Apache-2.0
"""op_tools: finds the operator that is wrong or slow, on any PyTorch device.

    with op_tools.OpOverflowCheck():
        train_step()

Each tool is a context manager with start(), stop() and end(). Importing this package changes
nothing: the dispatcher is touched while a tool runs, and is as it was afterwards.
"""

from op_tools.ditorch_compat import api_hooks as _api_hooks  # noqa: F401  follows tools that speak ditorch
from op_tools.ditorch_compat.features import apply_feature
from op_tools.runs.self_checking import SelfCheckError, self_check
from op_tools.tools.autocompare import CompareError, OpAutoCompare
from op_tools.tools.capture import OpCapture
from op_tools.tools.dtype_cast import OpDtypeCast
from op_tools.tools.fallback import OpFallback
from op_tools.tools.observe import OpObserve
from op_tools.tools.overflow_check import OpOverflowCheck
from op_tools.tools.time_measure import OpTimeMeasure

__version__ = "0.1.0"
__all__ = [
    "CompareError",
    "OpAutoCompare",
    "OpCapture",
    "OpDtypeCast",
    "OpFallback",
    "OpObserve",
    "OpOverflowCheck",
    "OpTimeMeasure",
    "SelfCheckError",
    "apply_feature",
    "self_check",
]
