# SPDX-License-Identifier: Apache-2.0
"""Packs whose functions are Python: the same YAML, registered through torch.library."""

from __future__ import annotations

import functools

import torch

from torch_npu import _C
from torch_npu._packs import Broken

KEYS = {
    "supported": "PrivateUse1",
    "autograd": "AutogradPrivateUse1",
    "custom": "PrivateUse1",
    # Its autograd is what PyTorch records of the function, or a torch.autograd.Function inside.
    "custom_autograd": "CompositeImplicitAutograd",
}


def function_of(pack, module, row: dict):
    name = row["function"]
    function = getattr(module, name, None)
    if not callable(function):
        raise Broken(
            f"{pack.yaml}:{row['line']}: {row['overload']}: no function '{name}' in {module.__file__}"
        )
    return function


def noted(overload: str, function):
    """The function, its calls counted and, at level debug, logged: as those of C++ packs."""
    note = _C._pack_call_note(overload)

    @functools.wraps(function)
    def call(*args, **kwargs):
        note()
        return function(*args, **kwargs)

    return call


def register(pack, module) -> list:
    """The libraries; they hold the registrations, so that a failure undoes all of them."""
    libraries: dict[str, torch.library.Library] = {}
    for row in pack.manifest["operators"]:
        namespace, _, bare = row["overload"].partition("::")
        function = function_of(pack, module, row)
        try:
            if namespace not in libraries:
                mode = "IMPL" if namespace == "aten" else "FRAGMENT"
                libraries[namespace] = torch.library.Library(namespace, mode)
            library = libraries[namespace]
            if "schema" in row:
                library.define(row["schema"])
            kernel = noted(row["overload"], function)
            library.impl(bare, kernel, KEYS[row["section"]], allow_override=True)
            fake = getattr(module, f"{row['function']}_fake", None)
            if fake is not None:
                torch.library.register_fake(row["overload"], fake, lib=library)
        except (RuntimeError, ValueError) as error:
            for library in libraries.values():
                library._destroy()
            reason = str(error).splitlines()[0].rstrip(".")
            raise Broken(f"{pack.yaml}:{row['line']}: {row['overload']}: {reason}") from None
    return list(libraries.values())
