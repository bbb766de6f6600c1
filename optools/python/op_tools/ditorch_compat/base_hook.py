# SPDX-License-Identifier: Apache-2.0
"""A tool's part in one Python API call: ditorch's hooks, which print and write its forms.

Tools that speak ditorch (OP_TOOLS_VERBOSE, OP_CAPTURE_FORMAT) make a hook per call. A hook can
also be called itself: OpObserveHook("torch.add", torch.add)(x, y).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import torch

from op_tools.core import _C, api_names, options, quiet
from op_tools.core.containers import is_cpu_op, tensors_in
from op_tools.core.operator_lists import Lists
from op_tools.core.warning import warn
from op_tools.ditorch_compat import op_names
from op_tools.ditorch_compat.gradient_watch import GradientWatch
from op_tools.ditorch_compat.utils import current_location

_said: set[tuple[str, str, str]] = set()
_here = threading.local()


class DisableHookGuard(contextlib.AbstractContextManager):
    """While entered, no hook and no tool sees what this thread does."""

    def __enter__(self) -> DisableHookGuard:
        self._before = _C.quiet()
        _here.disabled = getattr(_here, "disabled", 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        _here.disabled -= 1
        _C.end_quiet(self._before)


def form() -> str:
    """Which of ditorch's forms to print."""
    return options.verbose() or "ditorch"


def is_watched(name: str, args: tuple, kwargs: dict) -> bool:
    """Does the call reach a device the tools look at?"""
    wanted = options.devices()
    host, device = is_cpu_op(*args, **kwargs)
    if not host and device.type in wanted:
        return True
    moved = op_names.moved_to(name)
    if moved is not None and moved != "cpu":
        return moved in wanted
    if not tensors_in(args, kwargs) and host and "device" not in kwargs:
        return torch.get_default_device().type in wanted
    return host and "cpu" in wanted


def give_up(tool, name: str, error: Exception) -> None:
    """Training goes on; this tool's hooks do not."""
    tool.gave_up = True
    warn(
        f"{type(tool).__name__} stopped printing single calls after an internal error at "
        f"{api_names.plain(name)}: {type(error).__name__}: {error}"
    )


class BaseHook:
    """One call. Sub-classes say whether they apply, and what is told of it."""

    family = ""  # OP_<family>_LIST
    label = "OpTool"

    def __init__(self, name: str | None, func: Callable | None) -> None:
        self.name = name
        self.func = func
        self.forward_id = 0
        self.lists: Lists | None = None
        self.tool: object = None
        self.condition_funcs: list[Callable] = []
        self.exception: BaseException | None = None
        self.args: tuple = ()
        self.kwargs: dict = {}

    # ---- for sub-classes -----------------------------------------------------
    def is_should_apply(self, *args: object, **kwargs: object) -> bool:
        return True

    def before_call_op(self, *args: object, **kwargs: object) -> None:
        """Arguments are as the function will see them."""

    def after_call_op(self, result: object) -> None:
        """The function has returned."""

    def after_raise(self) -> None:
        """The function has raised."""

    def backward(self, grad_inputs: tuple, grad_outputs: tuple) -> None:
        """What the results received, and this call's part of the arguments' gradients."""

    def before_backward(self) -> None:
        """The first result's gradient has arrived."""

    def run(self, *args: object, **kwargs: object) -> object:
        return self.func(*args, **kwargs)

    # ---- life ----------------------------------------------------------------
    @classmethod
    def class_name(cls) -> str:
        return cls.__name__

    def add_condition_func(self, func: Callable) -> None:
        if not callable(func):
            raise ValueError("a condition is a function with the operator's own arguments")
        self.condition_funcs.append(func)

    def conditions_met(self, *args: object, **kwargs: object) -> bool:
        return all(func(*args, **kwargs) for func in self.condition_funcs)

    def _wanted(self, args: tuple, kwargs: dict) -> bool:
        if not (self.lists or Lists(self.family)).takes_api(self.name):
            return False
        return self.conditions_met(*args, **kwargs) and self.is_should_apply(*args, **kwargs)

    def begin(self, args: tuple, kwargs: dict) -> Callable[..., None] | None:
        """Before the call; returns what takes its result (or nothing, where it raised), or None
        where this does not apply."""
        if getattr(_here, "disabled", 0) or not api_names.is_operator(self.name):
            return None
        if not is_watched(self.name, args, kwargs):
            return None
        with quiet():
            if not self._wanted(args, kwargs):
                self.say("skip", form() == "ditorch-2024-08")
                return None
            self.say("apply", False)
            self.args, self.kwargs = args, kwargs
            self.place = current_location(self.name)
            self.before_call_op(*args, **kwargs)
            watch = GradientWatch(args, kwargs)

        def done(*made: object) -> None:
            with quiet():
                if not made:
                    self.after_raise()
                    return
                (result,) = made
                failed = self._fail if self.tool is not None else None
                watch.attach(result, self._on_backward, self._on_begin, failed)
                self.after_call_op(result)
                # Held from its own autograd node, a result would never be freed.
                self.args, self.kwargs = (), {}

        return done

    @property
    def _is_listened_to(self) -> bool:
        return self.tool is None or (self.tool.is_running and not self.tool.gave_up)

    def _on_begin(self) -> None:
        if self._is_listened_to:
            self.before_backward()

    def _on_backward(self, grad_inputs: tuple, grad_outputs: tuple) -> None:
        if self._is_listened_to:
            self.backward(grad_inputs, grad_outputs)

    def _fail(self, error: Exception) -> None:
        give_up(self.tool, self.name, error)

    def say(self, what: str, every_time: bool) -> None:
        key = (what, self.class_name(), self.name)
        if every_time or key not in _said:
            _said.add(key)
            print(f"{what} {self.class_name()} on {self.name}")

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.forward_id = _C.next_api_call()
        done = self.begin(args, kwargs)
        if done is None:
            return self.func(*args, **kwargs)
        try:
            result = self.run(*args, **kwargs)
        except BaseException as error:
            self.exception = error
            done()
            raise
        done(result)
        return result


def say_refused(hook: type[BaseHook], name: str) -> None:
    """ditorch's line for what is no operator (`torch.Tensor.backward`), said once."""
    hook(name, None).say("skip", False)


def forget_said() -> None:
    """Lines that are said once are said again."""
    _said.clear()
