# SPDX-License-Identifier: Apache-2.0
"""Ascend's own operators as compositions of PyTorch's, one module a family.

A function is the kernel of every device. By default PyTorch's autograd, fake tensors and compilers
see through it; with `meta` the operator is opaque: that function answers for fake tensors, and no
gradient is recorded. With `native` C++ has a faster kernel and the gradient (src/aten/ops/fused): the
function is what it falls back on, and answers for fake tensors; compilers keep the operator whole.
Autocast does not reach inside, as on Ascend.
"""

import functools

import torch

_FUNCTIONS: dict[str, tuple] = {}
_library: dict[str, torch.library.Library] = {}


def implements(*names: str, meta=None, native=None):
    """Makes a function the kernel of the overloads "name" or "name.overload" of namespace npu.

    `native`: True, or the names of operators that the C++ gradient calls.
    """

    def note(function):
        for name in names:
            whole = name if "::" in name else f"npu::{name}"
            _FUNCTIONS[whole] = (function, meta, native)
        return function

    return note


def register(namespace: str, name: str) -> None:
    """Registers what the imported modules have for an operator's overloads."""
    whole = f"{namespace}::{name}"
    for overload in [k for k in _FUNCTIONS if k.partition(".")[0] == whole]:
        function, meta, native = _FUNCTIONS[overload]
        if namespace not in _library:
            _library[namespace] = torch.library.Library(namespace, "FRAGMENT")
        library = _library[namespace]
        bare = overload.partition("::")[2]
        opaque = meta is not None or native
        key = "CompositeExplicitAutograd" if opaque else "CompositeImplicitAutograd"
        library.impl(bare, _without_autocast(function), key)
        if native:
            torch.library.register_fake(overload, meta or _without_autocast(function), lib=library)
            for needed in native if isinstance(native, tuple) else ():
                getattr(torch.ops.npu, needed)
        elif meta is not None:
            library.impl(bare, meta, "Meta")


def _without_autocast(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with torch._C._DisableAutocast():
            return function(*args, **kwargs)

    return call
