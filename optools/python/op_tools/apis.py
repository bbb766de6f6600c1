# SPDX-License-Identifier: Apache-2.0
"""Python API names: a TorchFunctionMode whose handler is C++, on while a tool asks for names."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from op_tools.core import _C

# Questions about a tensor, not computations.
_NOT_OPERATORS = {
    "torch.Tensor." + name
    for name in (
        "data_ptr backward has_names numel size __repr__ __format__ type dim requires_grad_"
    ).split()
}

_lock = threading.RLock()
_listeners: list[Callable[[str, int], None]] = []
_mode_users: dict[int, int] = {}  # thread -> tools that asked there
on_refused: Callable[[str], None] | None = None  # told of what is no operator


class ApiNames(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.__torch_function__ = _C.api_handler(self)


_mode = ApiNames()


def name_of(function: object) -> str | None:
    """`torch.nn.functional.linear`, or None for what has no name."""
    name = resolve_name(function)
    if name is None:
        module = getattr(function, "__module__", None)
        own = getattr(function, "__name__", None)
        name = f"{module}.{own}" if module and own else None
    return name


def is_operator(name: str | None) -> bool:
    """Is it a computation, and no question about a tensor?"""
    return (
        name is not None
        and name not in _NOT_OPERATORS
        and not name.endswith((".__get__", ".__set__"))
    )


def announce(name: str, number: int) -> None:
    """Tells every tool that listens of a name and its number."""
    with _lock:
        for listener in _listeners:
            listener(name, number)


def _resolve(function: object) -> str | None:
    """Called once per function and start of a talkative tool."""
    name = name_of(function)
    if not is_operator(name):
        if name is not None and on_refused is not None:
            on_refused(name)
        return None
    announce(name, _C.api_number(name))
    return name


def meet_again() -> None:
    """Every function is resolved once more when it is next called."""
    _C.set_api_resolver(_resolve)


meet_again()


def _remove_mode() -> None:
    above = []
    while torch._C._len_torch_function_stack():
        top = torch._C._pop_torch_function_stack()
        if top is _mode:
            break
        above.append(top)
    for mode in reversed(above):
        torch._C._push_on_torch_function_stack(mode)


def listen(listener: Callable[[str, int], None]) -> None:
    """Calls listener(name, number) for every API known now and met later; the mode goes on here."""
    thread = threading.get_ident()
    with _lock:
        for number, name in enumerate(_C.api_names()):
            if number:
                listener(name, number)
        _listeners.append(listener)
        _mode_users[thread] = _mode_users.get(thread, 0) + 1
        if _mode_users[thread] == 1:
            torch._C._push_on_torch_function_stack(_mode)


def forget(listener: Callable[[str, int], None], thread: int) -> None:
    """Undoes listen() of `thread`. From another thread the mode stays there, passing calls on."""
    with _lock:
        _listeners.remove(listener)
        _mode_users[thread] -= 1
        if _mode_users[thread] == 0 and thread == threading.get_ident():
            del _mode_users[thread]
            _remove_mode()
