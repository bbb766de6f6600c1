# SPDX-License-Identifier: Apache-2.0
"""What a tool says that saw no call, or no backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_tools.core import options
from op_tools.core.printing import many

if TYPE_CHECKING:
    from op_tools.core.op_tool import OpTool

# Where the core stops counting (core/unseen.h).
_MOST = 10_000


def why_nothing(tool: OpTool) -> str:
    """Of a tool that has stopped: what ran meanwhile, and what would have it watched."""
    watched = " and ".join(tool.devices)
    ran = tool._last.unseen()
    here = sum(ran.get(device, 0) for device in tool.devices)
    others = {device: count for device, count in ran.items() if device not in tool.devices}
    more = "over " if sum(ran.values()) >= _MOST else ""
    if here:
        limits = ", ".join(_limits(tool)) or "its settings"
        return f"0 calls: {more}{here} ran on {watched}, none that {limits} asks for"
    if others:
        ran_on = ", ".join(f"{more}{count} ran on {device}" for device, count in others.items())
        them = "it" if sum(others.values()) == 1 else "them"
        return f"0 calls on {watched}; {ran_on}: OP_TOOLS_DEVICE={','.join(others)} watches {them}"
    return f"0 calls on {watched}: no operator ran between start() and stop()"


def _limits(tool: OpTool) -> list[str]:
    """What was set to select calls."""
    found = [
        f"{variable}={value}"
        for variable in (f"OP_{tool.family}_LIST", f"OP_{tool.family}_DISABLE_LIST")
        if (value := options.text(variable))
    ]
    if len(set(tool.phases)) < 3:
        found.append(f"phases={tuple(tool.phases)}")
    steps = tool.steps or options.steps(f"OP_{tool.family}_STEPS")
    if steps:
        found.append(f"steps {steps[0]} to {steps[1]}")
    if tool.modules is not None:
        found.append(f"modules={tool.modules!r}")
    if tool.thread:
        found.append(f"thread={tool.thread}")
    return found


def no_backward(calls: int) -> str:
    return (
        f"no backward() ran for {many(calls, 'forward call')}: "
        "one after stop(), or after the `with` block, is not watched"
    )
