# SPDX-License-Identifier: Apache-2.0
"""apply_feature(): a tool for chosen functions only, from every caller."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import types
from collections.abc import Callable

import torch
from torch import nn

from op_tools.core import _C, api_names
from op_tools.core.api_names import alias
from op_tools.core.dotted_names import get_function_from_string
from op_tools.tools import registry

FEATURES = registry.features()
_lock = threading.RLock()
_shared: dict[str, Shared] = {}  # by feature
_applied: dict[tuple[int, str], Applied] = {}  # by owner and attribute


class Shared:
    """The tool of a feature; it runs while anything uses it."""

    def __init__(self, feature: str) -> None:
        self.feature, self.users = feature, 0
        self.tool = FEATURES[feature]()
        self.tool.applied = set()
        self.tool.start()

    @staticmethod
    def of(feature: str) -> Shared:
        """One more user of it."""
        with _lock:
            shared = _shared.get(feature)
            if shared is None or not shared.tool.is_running:
                shared = _shared[feature] = Shared(feature)
            shared.users += 1
            return shared

    def number(self, name: str) -> int:
        """The API number of calls made for the feature; the tool acts on them, lists permitting."""
        with _lock:
            named = alias(name, self.feature)
            number = _C.api_number(named)
            if named not in self.tool.applied:
                self.tool.applied.add(named)
                self.tool._tool.set_api(number, self.tool._lists.takes_api(name), False)
                api_names.announce(name, number)  # to other tools it is a call of that name
            return number

    def release(self) -> None:
        with _lock:
            self.users -= 1
            if self.users:
                return
            if _shared.get(self.feature) is self:
                del _shared[self.feature]
        self.tool.stop()


def run_as(feature: str, name: str, function: Callable, args: tuple, kwargs: dict) -> object:
    """One call of a function with a feature applied."""
    shared = Shared.of(feature)
    try:
        return _C.call_api(function, shared.number(name), args, kwargs)
    finally:
        shared.release()


def after_fork() -> None:
    """A child process has no tools: functions are themselves again."""
    global _lock
    _lock = threading.RLock()
    _shared.clear()
    for applied in set(_applied.values()):
        applied.take_out()


os.register_at_fork(after_in_child=after_fork)  # after op_tool.py's, which ends all tools


def _script_builtins() -> dict[int, str]:
    return torch.jit._builtins._get_builtin_table()


class Applied:
    """A feature on one function; undo() puts the function back."""

    def __init__(self, name: str, function: Callable, feature: str, condition) -> None:
        self.name, self.feature, self.function = name, feature, function
        self._shared = Shared.of(feature)
        try:
            number = self._shared.number(name)
        except BaseException:
            self._shared.release()
            raise
        self._places: list[tuple[object, str, bool]] = []

        @functools.wraps(function)
        def applied(*args: object, **kwargs: object) -> object:
            if condition is not None and not condition(*args, **kwargs):
                return function(*args, **kwargs)
            return _C.call_api(function, number, args, kwargs)

        self.wrapper = applied
        self._is_applied = True
        # TorchScript knows PyTorch's functions by their identity: it takes this one for the other.
        builtins = _script_builtins()
        if id(function) in builtins:
            builtins[id(applied)] = builtins[id(function)]

    def put(self, owner: object, attribute: str) -> None:
        own = attribute in vars(owner) if hasattr(owner, "__dict__") else True
        setattr(owner, attribute, self.wrapper)
        self._places.append((owner, attribute, own))
        _applied[id(owner), attribute] = self

    def take_out(self) -> bool:
        """Puts the function back; False where that was done before."""
        with _lock:
            if not self._is_applied:
                return False
            self._is_applied = False
            _script_builtins().pop(id(self.wrapper), None)
            for owner, attribute, own in self._places:
                _applied.pop((id(owner), attribute), None)
                if own:
                    setattr(owner, attribute, self.function)
                else:
                    delattr(owner, attribute)
            return True

    def undo(self) -> None:
        if self.take_out():
            self._shared.release()


class Features:
    """What apply_feature() did; undo() takes all of it back. Also a context manager."""

    def __init__(self, parts: list[Applied]) -> None:
        self.parts = parts

    def undo(self) -> None:
        for part in reversed(self.parts):
            part.undo()

    def __enter__(self) -> Features:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def _other_names(function: Callable) -> list[tuple[object, str]]:
    """Modules that imported the function under some name: `from torch import add`."""
    if not isinstance(function, (types.FunctionType, types.BuiltinFunctionType)):
        return []
    found = []
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType) or module.__name__.startswith("op_tools"):
            continue
        names = [name for name, value in list(vars(module).items()) if value is function]
        found += [(module, name) for name in names]
    return found


def _target(op: object) -> tuple[str, Callable, list[tuple[object, str]]]:
    """(name, function, where it is found) of a dotted name, a function or a neural module."""
    if isinstance(op, nn.Module):
        kind = type(op)
        return f"{kind.__module__}.{kind.__qualname__}.forward", op.forward, [(op, "forward")]
    if isinstance(op, str):
        owner_name, _, attribute = op.strip().rpartition(".")
        owner = get_function_from_string(owner_name)
        function = getattr(owner, attribute)
        name, places = op.strip(), [(owner, attribute)]
    else:
        function, name, places = op, api_names.name_of(op), []
        if name is None:
            raise ValueError(f"{op!r} has no name to apply a feature to; give its dotted name")
        if "." in getattr(op, "__qualname__", ""):  # a method: its class has it
            return _target(name)
    if isinstance(function, type) and issubclass(function, nn.Module):
        return f"{name}.forward", function.forward, [(function, "forward")]
    if not callable(function):
        raise ValueError(f"{name} is no function")
    places += [place for place in _other_names(function) if place not in places]
    if not places:
        return _target(name)
    return name, function, places


def _routines(module: types.ModuleType) -> list[str]:
    return [
        f"{module.__name__}.{name}"
        for name, value in vars(module).items()
        if inspect.isroutine(value) and not name.startswith("_")
    ]


def _expand(ops: object) -> list:
    items = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    out = []
    for item in items:
        out += _routines(item) if isinstance(item, types.ModuleType) else [item]
    return out


def apply_feature(
    ops: str | list | tuple, feature: str, condition_func: Callable | None = None
) -> Features:
    """Applies a feature to functions: names, functions, Tensor methods, modules of either kind.

    condition_func has the function's own arguments and says of each call whether the feature
    applies. undo() of what is returned takes everything back.
    """
    assert isinstance(ops, (str, list, tuple)), (
        f"ops: expected a name, a list or a tuple, got {type(ops).__name__}"
    )
    assert feature in FEATURES, f"feature: expected one of {', '.join(FEATURES)}, got {feature!r}"
    parts: list[Applied] = []
    try:
        for op in _expand(ops):
            parts.append(_apply(op, feature, condition_func))
    except BaseException:
        Features(parts).undo()
        raise
    return Features(parts)


def _apply(op: object, feature: str, condition: Callable | None) -> Applied:
    with _lock:
        name, function, places = _target(op)
        for owner, attribute in places:
            before = _applied.get((id(owner), attribute))
            if before is not None:
                print(f"apply_feature: {before.feature} on {name} is replaced by {feature}")
                before.undo()
                name, function, places = _target(op)
                break
        applied = Applied(name, function, feature, condition)
        try:
            for owner, attribute in places:
                applied.put(owner, attribute)
        except BaseException:  # a type that lets nothing be set
            applied.undo()
            raise
        return applied
