# SPDX-License-Identifier: Apache-2.0
"""Every tool, once: what lists, runs, checks or applies tools asks here.

A tool is a sub-class of OpTool in a file of this folder. What others have to know about it are
attributes of the class: `family`, `feature`, `changes_results`.
"""

from __future__ import annotations

from op_tools.core.op_tool import OpTool
from op_tools.tools.autocompare import CompareError, OpAutoCompare
from op_tools.tools.capture import OpCapture
from op_tools.tools.dtype_cast import OpDtypeCast
from op_tools.tools.fallback import OpFallback
from op_tools.tools.observe import OpObserve
from op_tools.tools.overflow_check import OpOverflowCheck
from op_tools.tools.time_measure import OpTimeMeasure

# What `import op_tools` offers of this folder.
__all__ = [
    "CompareError",
    "OpAutoCompare",
    "OpCapture",
    "OpDtypeCast",
    "OpFallback",
    "OpObserve",
    "OpOverflowCheck",
    "OpTimeMeasure",
]

TOOLS: tuple[type[OpTool], ...] = (
    OpObserve,
    OpOverflowCheck,
    OpTimeMeasure,
    OpCapture,
    OpAutoCompare,
    OpFallback,
    OpDtypeCast,
)


def named(name: str) -> type[OpTool]:
    """The class of that name. Raises ValueError with the names there are."""
    for tool in TOOLS:
        if tool.__name__ == name:
            return tool
    raise ValueError(f"{name} is no tool: expected one of {names()}")


def names() -> str:
    return ", ".join(tool.__name__ for tool in TOOLS)


def features() -> dict[str, type[OpTool]]:
    """apply_feature()'s names."""
    return {tool.feature: tool for tool in TOOLS if tool.feature}
