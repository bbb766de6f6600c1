# SPDX-License-Identifier: Apache-2.0
"""Tests over dtypes, formats and operators: one method becomes one test per combination."""

import functools
import inspect
import itertools
from collections.abc import Callable

from .common_utils import get_npu_device

__all__ = [
    "Dtypes", "Formats", "feed_data", "gen_op_input", "gen_ops_testcase", "graph_mode",
    "instantiate_ops_tests", "instantiate_tests",
]  # fmt: skip


class _Axis:
    """Remembers on a test method the values one of its arguments takes."""

    argument = ""

    def __init__(self, *args) -> None:
        if not args:
            raise ValueError(f"{type(self).__name__}: expected at least one value")
        self._values = tuple(args[0]) if isinstance(args[0], (list, tuple)) else args

    def __call__(self, function: Callable) -> Callable:
        function.npu_axes = {self.argument: self._values, **getattr(function, "npu_axes", {})}
        return function


class Dtypes(_Axis):
    """The torch dtypes a test's `dtype` takes."""

    argument = "dtype"


class Formats(_Axis):
    """The ACL formats a test's `npu_format` takes."""

    argument = "npu_format"


def graph_mode(function: Callable) -> Callable:
    """The test itself: every test runs eagerly here."""
    return function


def feed_data(func: Callable, new_name: str, *args, **kwargs) -> Callable:
    """The test method `func` under a new name, with some arguments given."""

    @functools.wraps(func)
    def fed(self):
        return func(self, *args, **kwargs)

    del fed.__wrapped__  # runners read the signature through it, and would ask for the arguments
    fed.__name__ = new_name
    return fed


def _given(function: Callable, values: dict) -> dict:
    """What of `values` the method takes, and the device where it has no default for it."""
    parameters = inspect.signature(function).parameters
    given = {name: value for name, value in values.items() if name in parameters}
    device = parameters.get("device")
    if device is not None and device.default is inspect.Parameter.empty:
        given["device"] = get_npu_device()
    return given


def _suffix(value) -> str:
    return str(value).removeprefix("torch.").replace("-", "minus").replace(".", "_")


def _spread(cls: type, name: str, function: Callable, axes: dict) -> None:
    """Replaces one method by one per combination of `axes`."""
    delattr(cls, name)
    for values in itertools.product(*axes.values()):
        new_name = "_".join([name, *map(_suffix, values)])
        arguments = _given(function, dict(zip(axes, values)))
        setattr(cls, new_name, feed_data(function, new_name, **arguments))


def _tests(cls: type) -> list[tuple[str, Callable]]:
    return [(n, f) for n, f in list(vars(cls).items()) if n.startswith("test") and callable(f)]


def _instantiate(cls: type) -> type:
    for name, function in _tests(cls):
        axes = getattr(function, "npu_axes", {})
        if axes or _given(function, {}):
            _spread(cls, name, function, axes)
    return cls


def instantiate_tests(arg=None, **kwargs):
    """Class decorator, with or without parentheses."""
    return _instantiate(arg) if inspect.isclass(arg) else _instantiate


def gen_op_input(testcase, func: Callable, op_info) -> dict:
    """The axes of a test over one operator: its dtypes, and the test's decorators."""
    axes = dict(getattr(func, "npu_axes", {}))
    dtypes = getattr(op_info, "dtypesIfNPU", None) or op_info.dtypes
    axes.setdefault("dtype", tuple(sorted(dtypes, key=str)))
    return axes


def gen_ops_testcase(cls: type, func: Callable, name: str, keys, value, op_info) -> None:
    """Adds one test of one operator."""
    new_name = "_".join([name, op_info.name.replace(".", "_"), *map(_suffix, value)])
    arguments = _given(func, {"op": op_info, **dict(zip(keys, value))})
    setattr(cls, new_name, feed_data(func, new_name, **arguments))


def instantiate_ops_tests(op_db):
    """Class decorator: each test runs for each operator of `op_db` (OpInfo) and its dtypes."""

    def decorate(cls: type) -> type:
        for name, function in _tests(cls):
            delattr(cls, name)
            for op_info in op_db:
                axes = gen_op_input(cls, function, op_info)
                for values in itertools.product(*axes.values()):
                    gen_ops_testcase(cls, function, name, axes, values, op_info)
        return cls

    return decorate
