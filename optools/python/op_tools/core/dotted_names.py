# SPDX-License-Identifier: Apache-2.0
"""`torch.nn.functional.linear` as an object."""

from __future__ import annotations

import importlib


def get_function_from_string(func_str: str) -> object:
    """`a.b.c`: imports a, then takes attributes (importing sub-modules where needed)."""
    parts = [part.strip() for part in func_str.split(".")]
    if not all(parts):
        raise ValueError(f"{func_str!r} is no dotted name such as torch.add")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(found, part) and hasattr(found, "__path__"):
            importlib.import_module(".".join(parts[:i]))
        found = getattr(found, part)
    return found
