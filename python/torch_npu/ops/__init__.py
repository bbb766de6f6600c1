# SPDX-License-Identifier: Apache-2.0
"""Ascend's own operators as compositions of PyTorch's, one module a family.

A function is the kernel of every device. By default PyTorch's autograd, fake tensors and compilers
see through it; with `meta` the operator is opaque: that function answers for fake tensors, and no
gradient is recorded. Autocast does not reach inside, as on Ascend.
"""

import functools

import torch

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


def register(namespace: str, name: str) -> None:
    """Registers what the imported modules have for an operator's overloads."""
    whole = f"{namespace}::{name}"
    for overload in [k for k in _FUNCTIONS if k.partition(".")[0] == whole]:
        function, meta = _FUNCTIONS[overload]
        if namespace not in _library:
            _library[namespace] = torch.library.Library(namespace, "FRAGMENT")
        library = _library[namespace]
        bare = overload.partition("::")[2]
        key = "CompositeImplicitAutograd" if meta is None else "CompositeExplicitAutograd"
        library.impl(bare, _without_autocast(function), key)
        if meta is not None:
            library.impl(bare, meta, "Meta")


def _without_autocast(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with torch._C._DisableAutocast():
            return function(*args, **kwargs)

    return call
