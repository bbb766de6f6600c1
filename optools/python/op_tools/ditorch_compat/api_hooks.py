# SPDX-License-Identifier: Apache-2.0
"""Tools that speak ditorch: a hook per API call, made by what stands around the call."""

from __future__ import annotations

from collections.abc import Callable

from op_tools.core import _C, api_names, op_tool
from op_tools.ditorch_compat.base_hook import BaseHook, forget_said, give_up, say_refused

_tools: list = []


def _hook(tool) -> type[BaseHook] | None:
    """The class that speaks for a tool, `<tool>Hook`; None for a tool ditorch has no lines of."""
    from op_tools.ditorch_compat import capture_hook, compare_hook, tool_hooks

    name = f"{type(tool).__name__}Hook"
    for module in (tool_hooks, capture_hook, compare_hook):
        if hasattr(module, name):
            return getattr(module, name)
    return None


def _takes(tool, name: str) -> bool:
    """Calls of a feature are for its tool; other tools see them under the plain name."""
    return tool.applied is None or name in tool.applied


def _begin(tool, name: str, call: int, function, args: tuple, kwargs: dict):
    """Never raises into user code: a tool whose hook fails goes silent and says why."""
    if not tool.speaks or tool.gave_up or not _takes(tool, name):
        return None
    made_by = _hook(tool)
    if made_by is None:
        return None
    hook = made_by(api_names.plain(name), function)
    hook.forward_id, hook.lists, hook.tool = call, tool._lists, tool
    try:
        return hook.begin(args, kwargs)
    except Exception as error:
        give_up(tool, name, error)
        return None


def _observe(name: str, call: int, function, args: tuple, kwargs: dict | None):
    """Before an API call: every tool that speaks, the last entered first."""
    after = []
    for tool in reversed(_tools):
        done = _begin(tool, name, call, function, args, kwargs or {})
        if done is not None:
            after.append((tool, done))
    if not after:
        return None

    def finish(*result: object) -> None:
        """With the result, or with nothing where the function raised."""
        for tool, done in after:
            try:
                done(*result)
            except Exception as error:
                give_up(tool, name, error)

    return finish


def _refused(name: str) -> None:
    for tool in _tools:
        if tool.speaks and not tool.gave_up:
            try:
                hook = _hook(tool)
                if hook is not None:
                    say_refused(hook, name)
            except Exception as error:
                give_up(tool, name, error)


def refresh(running: list, started: object = None) -> None:
    """Called whenever a tool has started or stopped."""
    _tools[:] = running
    speaks = any(tool.speaks for tool in running)
    observer: Callable | None = _observe if speaks else None
    _C.set_api_observer(observer)
    api_names.on_refused = _refused if speaks else None
    if started is not None and started.speaks:
        forget_said()
        api_names.meet_again()


op_tool.on_change.append(refresh)
