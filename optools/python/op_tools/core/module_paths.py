# SPDX-License-Identifier: Apache-2.0
"""Module paths (`blocks.0.norm1`) of calls: global module hooks, on while a tool asks for them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules import module as hooks

from op_tools.core import _C

_lock = threading.RLock()
_users: list[Callable[[str, int], None]] = []
_handles: list = []
_numbers: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
_known: dict[str, int] = {}
_roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()


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
            _numbers.setdefault(module, _number(_plain(path) or type(root).__name__))
        _roots.add(root)
        _name_tensors(root)


def _name_tensors(root: nn.Module) -> None:
    """Parameters and buffers by name, for tools that find something in one."""
    for path, module in root.named_modules():
        prefix = _plain(path)
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    _C.name_tensor(tensor, f"{prefix}.{name}" if prefix else name)


def _plain(path: str) -> str:
    """Without what torch.compile puts around a module."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def _find(module: nn.Module) -> int:
    try:
        number = _numbers.get(module)
        if number is None:
            _name_tree(module)  # the outermost module met first names its tree
            number = _numbers[module]
        return number
    except Exception:  # a module that cannot be hashed, or walks its own in its own way
        return _number(type(module).__name__)


# In what torch.compile traces there is nothing to enter: the graph's calls are the program then.
def _before(module: nn.Module, args: tuple) -> None:
    if not torch.compiler.is_compiling():
        _C.enter_module(_find(module))


def _after(module: nn.Module, args: tuple, output: object) -> None:
    if not torch.compiler.is_compiling():
        _C.leave_module()


def listen(listener: Callable[[str, int], None]) -> None:
    with _lock:
        for path, number in _known.items():
            listener(path, number)
        _users.append(listener)
        if len(_users) == 1:
            for root in list(_roots):  # they may have moved to other memory
                with contextlib.suppress(Exception):
                    _name_tensors(root)
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
