# SPDX-License-Identifier: Apache-2.0
"""Ascend's own operators as compositions of PyTorch's, one module a family.

A function is the kernel of every device. By default PyTorch's autograd, fake tensors and compilers
see through it; with `meta` the operator is opaque: that function answers for fake tensors, and no
gradient is recorded. Where the operator's row in ops/npu gives it a kernel or a gradient, the function is
what these fall back on, and answers for fake tensors; compilers keep the operator whole.
Autocast does not reach inside, as on Ascend.
"""

import functools
import inspect

import torch

from torch_npu import _C
from torch_npu.ops._check import line_of

_FUNCTIONS: dict[str, tuple] = {}
_library: dict[str, torch.library.Library] = {}


def implements(*names: str, meta=None):
    """Makes a function the kernel of the overloads "name" or "name.overload" of namespace npu."""

    def note(function):
        for name in names:
            whole = name if "::" in name else f"npu::{name}"
            _FUNCTIONS[whole] = (function, meta)
        return function

    return note


def _returns_arguments(overload: str) -> bool:
    name, _, of = overload.partition(".")
    return any(r.alias_info is not None for r in torch._C._get_schema(name, of).returns)


def register(namespace: str, name: str) -> None:
    """Registers the imported modules' functions for an operator's overloads."""
    whole = f"{namespace}::{name}"
    for overload in [k for k in _FUNCTIONS if k.partition(".")[0] == whole]:
        function, meta = _FUNCTIONS[overload]
        if namespace not in _library:
            _library[namespace] = torch.library.Library(namespace, "FRAGMENT")
        library = _library[namespace]
        bare = overload.partition("::")[2]
        needed = _C._custom_kernel(namespace, bare)
        if needed is not None and _returns_arguments(overload):
            needed = None  # PyTorch functionalizes such operators only by their composition
        opaque = meta is not None or needed is not None
        key = "CompositeExplicitAutograd" if opaque else "CompositeImplicitAutograd"
        library.impl(bare, _without_autocast(function), key)
        if needed is not None:
            torch.library.register_fake(overload, meta or _without_autocast(function), lib=library)
            if needed:
                getattr(torch.ops.npu, needed)
        elif meta is not None:
            library.impl(bare, meta, "Meta")
    if whole in _FUNCTIONS and f"{whole}.out" not in _FUNCTIONS:
        _register_out(namespace, name)


def _register_out(namespace: str, name: str) -> None:
    """`name.out`, where nothing better exists, is the default overload and a copy."""
    from torch_npu import _out_argument

    function = _out_argument.writes_results(namespace, name)
    if function is not None:
        for key in ("CompositeExplicitAutograd", "Meta"):
            _library[namespace].impl(f"{name}.out", function, key, allow_override=True)


def _without_autocast(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with torch._C._DisableAutocast():
            try:
                return function(*args, **kwargs)
            except (RuntimeError, IndexError) as error:
                told = "ERR0" in str(error) and "on the same device" not in str(error)
                if told or type(error) not in (RuntimeError, IndexError):
                    raise
                found = error
        raise type(found)(_about_the_call(function, args, kwargs, found)) from found

    return call


def _about_the_call(function, args, kwargs, error) -> str:
    """Reports an error of PyTorch inside a composition under the operator that the user called."""
    name, places, shapes = function.__name__, {}, []
    for key, value in inspect.signature(function).bind(*args, **kwargs).arguments.items():
        tensors = value if isinstance(value, (list, tuple)) else (value,)
        tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
        for tensor in tensors:
            places.setdefault(tensor.device, key)
        if tensors:
            shapes.append(f"{key} {', '.join(str(list(t.shape)) for t in tensors)}")
    where = " and ".join(f"{key} is on {device}" for device, key in places.items())
    text = f"{where}; all tensors must be on one device."
    if len(places) < 2 or "device" not in str(error):
        reason = str(error).splitlines()[0].rstrip(".")
        text = f"{reason}. The arguments' shapes: {'; '.join(shapes)}."
    return f"{name}: {text}{line_of('PARAM')}"
