# SPDX-License-Identifier: Apache-2.0
"""Acts on a module of another library when it is imported, or at once if it already was.

Who does not import one of them pays one look into a dictionary for each module that is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

Action = Callable[[ModuleType], None]
_actions: dict[str, Action] = {}


def when_imported(names: Iterable[str], action: Action) -> None:
    if not _actions:
        sys.meta_path.insert(0, _Finder())
    for name in names:
        _actions[name] = action
        if name in sys.modules:
            action(sys.modules[name])


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname not in _actions:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _ThenAct(spec.loader, _actions[fullname])
                return spec
        return None


class _ThenAct(importlib.abc.Loader):
    """Runs a module as its own loader does, then the action; the module never sees this one."""

    def __init__(self, loader: importlib.abc.Loader, action: Action) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action(module)
