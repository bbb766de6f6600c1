# SPDX-License-Identifier: Apache-2.0
"""Module paths (`blocks.0.norm1`) of calls: global module hooks, on while a tool asks for them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from torch import nn
from torch.nn.modules import module as hooks

from op_tools.core import _C

_lock = threading.RLock()
_users: list[Callable[[str, int], None]] = []
_handles: list = []
_numbers: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
_known: dict[str, int] = {}


def _number(path: str) -> int:
    number = _C.module_number(path)
    if path not in _known:
        _known[path] = number
        for listener in _users:
            listener(path, number)
    return number


def _name_tree(root: nn.Module) -> None:
    with _lock:
        for path, module in root.named_modules():
            _numbers.setdefault(module, _number(path or type(root).__name__))


def _before(module: nn.Module, args: tuple) -> None:
    number = _numbers.get(module)
    if number is None:
        _name_tree(module)  # the outermost module met first names its tree
        number = _numbers[module]
    _C.enter_module(number)


def _after(module: nn.Module, args: tuple, output: object) -> None:
    _C.leave_module()


def listen(listener: Callable[[str, int], None]) -> None:
    with _lock:
        for path, number in _known.items():
            listener(path, number)
        _users.append(listener)
        if len(_users) == 1:
            _handles.append(hooks.register_module_forward_pre_hook(_before))
            _handles.append(hooks.register_module_forward_hook(_after, always_call=True))


def forget(listener: Callable[[str, int], None]) -> None:
    """Undoes listen(); nothing where that was not called."""
    with _lock:
        if listener in _users:
            _users.remove(listener)
            if not _users:
                _unhook()


def _unhook() -> None:
    for handle in _handles:
        handle.remove()
    _handles.clear()


def after_fork() -> None:
    """A child process has no tools."""
    global _lock
    _lock = threading.RLock()
    _users.clear()
    _unhook()
