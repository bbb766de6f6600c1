# SPDX-License-Identifier: Apache-2.0
"""Lightning learns of npu when its connector is imported: it has no entry point for accelerators.

Whoever does not import Lightning pays one look into a set for each module that is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import warnings
from types import ModuleType

# What chooses accelerator, strategy and precision: of the Trainer and of Fabric, under both names
# that each package has.
CONNECTORS = frozenset(
    {
        "lightning.fabric.connector",
        "lightning.pytorch.trainer.connectors.accelerator_connector",
        "lightning_fabric.connector",
        "pytorch_lightning.trainer.connectors.accelerator_connector",
    }
)


def install() -> None:
    for name in CONNECTORS & set(sys.modules):
        _connect(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname not in CONNECTORS:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _ThenConnect(spec.loader)
                return spec
        return None


class _ThenConnect(importlib.abc.Loader):
    """Runs a module as its own loader does, then connects it; the module never sees this one."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _connect(module)


def _connect(module: ModuleType) -> None:
    """A Lightning that is built differently is left as it is, with a line that says so."""
    from torch_npu._lightning import connect

    try:
        connect.connect(module)
    except (AttributeError, ImportError) as error:
        warnings.warn(
            f"torch_npu: accelerator 'npu' could not be added to {module.__name__}: {error}. "
            "This version of Lightning is not known; use 2.5 or 2.6.",
            stacklevel=2,
        )
