# SPDX-License-Identifier: Apache-2.0
"""Functions of the user's own that O1 casts the arguments of."""

from __future__ import annotations

import functools

import torch

from apex.amp._initialize import _cast
from apex.amp._state import DEVICE


def _with_casts(function, choose):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if not torch.is_autocast_enabled(DEVICE):
            return function(*args, **kwargs)
        dtype = choose(args, kwargs)
        if dtype is None:
            return function(*args, **kwargs)
        with torch.autocast(DEVICE, enabled=False):
            return function(*_cast(args, dtype), **_cast(kwargs, dtype))

    return wrapped


def _widest(args, kwargs) -> torch.dtype | None:
    types = [
        value.dtype
        for value in [*args, *kwargs.values()]
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    ]
    return functools.reduce(torch.promote_types, types) if types else None


def half_function(function):
    """Its tensors are float16 under O1."""
    return _with_casts(function, lambda args, kwargs: torch.float16)


def float_function(function):
    """Its tensors are float32 under O1."""
    return _with_casts(function, lambda args, kwargs: torch.float32)


def promote_function(function):
    """Its tensors have the widest of their types under O1."""
    return _with_casts(function, _widest)


def _register(module, name: str, kind) -> None:
    if not hasattr(module, name):
        raise ValueError(f"amp: no function '{name}' in {module!r}.")
    setattr(module, name, kind(getattr(module, name)))


def register_half_function(module, name: str) -> None:
    _register(module, name, half_function)


def register_float_function(module, name: str) -> None:
    _register(module, name, float_function)


def register_promote_function(module, name: str) -> None:
    _register(module, name, promote_function)
