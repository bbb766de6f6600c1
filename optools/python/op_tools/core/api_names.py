# SPDX-License-Identifier: Apache-2.0
"""Python API names: a TorchFunctionMode whose handler is C++, on while a tool asks for names."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._device import DeviceContext

from op_tools.core import _C

# Questions about a tensor, not computations.
_NOT_OPERATORS = {
    "torch.Tensor." + name
    for name in (
        "data_ptr backward has_names numel size __repr__ __format__ type dim requires_grad_"
    ).split()
} | {
    "torch.device",
    "torch._has_compatible_shallow_copy_type",
    "torch._C._nn._parse_to",
    "torch.autograd.backward",
    "torch.autograd.grad",
}
_SETTINGS = ("torch._C._set_", "torch._C._autograd", "profiler.")

_lock = threading.RLock()
_listeners: list[Callable[[str, int], None]] = []
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


# The name of a call made for apply_feature() ends in ` (feature)`.
def alias(name: str, feature: str) -> str:
    return f"{name} ({feature})"


def plain(name: str) -> str:
    """The API's own name."""
    return name.partition(" (")[0]


def is_operator(name: str | None) -> bool:
    """Is it a computation, and no question about a tensor?"""
    return (
        name is not None
        and name not in _NOT_OPERATORS
        and not name.endswith((".__get__", ".__set__"))
        and not name.startswith(_SETTINGS)
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


_here = threading.local()  # .mode: is it on this thread's stack? .missed: times it was not there


def _set_mode(on: bool) -> bool:
    """Puts the mode under all others of this thread, or takes it out.

    Under them, because a `with` block of the user's takes off whatever is on top when it ends;
    PyTorch's own default-device mode insists on the very bottom. While a function is handled
    PyTorch has the mode in its hands and puts it back later: False, ask again.
    """
    modes = [torch._C._pop_torch_function_stack() for _ in range(_depth())]
    away = getattr(_here, "mode", False) and _mode not in modes
    modes = [mode for mode in reversed(modes) if mode is not _mode]
    if away and _here.missed < _PATIENCE:
        _here.missed += 1
    else:
        _here.mode, _here.missed = on, 0
        away = False
    if on and not away:
        modes.insert(1 if modes and isinstance(modes[0], DeviceContext) else 0, _mode)
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)
    return not away


_depth = torch._C._len_torch_function_stack
_PATIENCE = 10_000  # Python events; after so many the mode was removed for good


def _follow() -> bool:
    """Makes this thread's stack what the listeners ask for; threads call it when they can."""
    return _set_mode(bool(_listeners))


def _follow_in_new_thread(*_: object) -> None:
    sys.setprofile(_profile_before)
    _follow()


_profile_before = None


def _run_backward(*args: object, **kwargs: object) -> object:
    """Backward runs Python code of the user's. `backward` being a function the mode handles,
    PyTorch has the mode off the stack meanwhile; autograd's threads get the stack as it is here."""
    stack = [torch._C._get_function_stack_at(i) for i in range(_depth())]
    if _mode in stack:
        return _run_backward_before(*args, **kwargs)
    torch._C._push_on_torch_function_stack(_mode)
    try:
        return _run_backward_before(*args, **kwargs)
    finally:
        modes = [torch._C._pop_torch_function_stack() for _ in range(_depth())]
        for mode in reversed(modes):
            if mode is not _mode:
                torch._C._push_on_torch_function_stack(mode)


_run_backward_before = torch.autograd._engine_run_backward


def _switch(on: bool) -> None:
    global _profile_before, _run_backward_before
    _C.visit_threads(_follow)
    if on:
        _profile_before = threading.getprofile()
        threading.setprofile(_follow_in_new_thread)
        _run_backward_before = torch.autograd._engine_run_backward
        torch.autograd._engine_run_backward = _run_backward
        return
    if threading.getprofile() is _follow_in_new_thread:
        threading.setprofile(_profile_before)
    if torch.autograd._engine_run_backward is _run_backward:
        torch.autograd._engine_run_backward = _run_backward_before


def after_fork() -> None:
    """A child process has this thread only, and no tools."""
    global _lock
    _lock = threading.RLock()
    if _listeners:
        _listeners.clear()
        _switch(False)


def listen(listener: Callable[[str, int], None]) -> None:
    """Calls listener(name, number) for every API known now and met later.

    The mode goes on: here at once, in other threads that run at the next thing they do in Python,
    in new ones from the start. PyTorch takes it along into autograd's threads.
    """
    with _lock:
        for number, name in enumerate(_C.api_names()):
            if number:
                listener(name, number)
        _listeners.append(listener)
        if len(_listeners) == 1:
            _switch(True)


def forget(listener: Callable[[str, int], None]) -> None:
    """Undoes listen(), from any thread; nothing where that was not called."""
    with _lock:
        if listener in _listeners:
            _listeners.remove(listener)
            if not _listeners:
                _switch(False)
