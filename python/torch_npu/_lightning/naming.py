# SPDX-License-Identifier: Apache-2.0
"""Classes that are made while Lightning loads, found by name where spawned processes look for them."""

from __future__ import annotations

from types import ModuleType


def publish(made: type, module: ModuleType) -> type:
    made.__module__, made.__qualname__ = module.__name__, made.__name__
    setattr(module, made.__name__, made)
    return made
