# SPDX-License-Identifier: Apache-2.0
"""Packs whose functions are Python: the same YAML, registered through torch.library."""

from __future__ import annotations

import contextlib
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


class Registration:
    """A pack's entries in the dispatcher. The operators are there before the pack's package is imported:
    its register_fake and register_autograd need them."""

    def __init__(self, pack) -> None:
        self.pack = pack
        self.libraries: dict[str, torch.library.Library] = {}
        for row in pack.manifest["operators"]:
            with self._told(row):
                library = self._library(row)
                if "schema" in row:
                    library.define(row["schema"])

    def implement(self, module) -> None:
        for row in self.pack.manifest["operators"]:
            with self._told(row):
                function = function_of(self.pack, module, row)
                kernel = noted(row["overload"], function)
                bare = row["overload"].partition("::")[2]
                library = self._library(row)
                library.impl(bare, kernel, KEYS[row["section"]], allow_override=True)
                fake = getattr(module, f"{row['function']}_fake", None)
                if fake is not None:
                    torch.library.register_fake(row["overload"], fake, lib=library)

    def undo(self) -> None:
        for library in self.libraries.values():
            library._destroy()

    def _library(self, row: dict) -> torch.library.Library:
        namespace = row["overload"].partition("::")[0]
        if namespace not in self.libraries:
            mode = "IMPL" if namespace == "aten" else "FRAGMENT"
            self.libraries[namespace] = torch.library.Library(namespace, mode)
        return self.libraries[namespace]

    @contextlib.contextmanager
    def _told(self, row: dict):
        """An error names the line of the YAML; no operator of the pack stays registered."""
        try:
            yield
        except Broken:
            self.undo()
            raise
        except (RuntimeError, ValueError) as error:
            self.undo()
            reason = str(error).splitlines()[0].rstrip(".")
            raise Broken(f"{self.pack.yaml}:{row['line']}: {row['overload']}: {reason}") from None
