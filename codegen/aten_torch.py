# SPDX-License-Identifier: Apache-2.0
"""What the installed torch says about its operators: native_functions.yaml, parsed by torchgen.

Parsing takes seconds, so the result is kept in the build folder under a name made of the
contents it came from; a damaged or foreign cache file is parsed anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from functools import cached_property
from pathlib import Path

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DispatchKey, NativeFunction, NativeFunctionsGroup


def packaged_yaml() -> Path:
    return Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"


class TorchOps:
    """Every ATen overload by name ("add.out"), and the group it belongs to; `cpu`: overloads that
    at::cpu exports a function for."""

    def __init__(self, groups, cpu):
        self.groups: tuple[NativeFunction | NativeFunctionsGroup, ...] = tuple(groups)
        self.cpu: frozenset[str] = frozenset(cpu)
        self.functions: dict[str, NativeFunction] = {}
        self.group_of: dict[str, NativeFunctionsGroup] = {}
        for group in self.groups:
            if isinstance(group, NativeFunction):
                self.functions[str(group.func.name)] = group
                continue
            for function in group.functions():
                self.functions[str(function.func.name)] = function
                self.group_of[str(function.func.name)] = group

    @cached_property
    def overloads_of(self) -> dict[str, list[str]]:
        """Base name ("add", "add_") -> its overloads, in torch's order."""
        result: dict[str, list[str]] = {}
        for name in self.functions:
            result.setdefault(name.partition(".")[0], []).append(name)
        return result


def cpu_functions(groups, index) -> list[str]:
    """Overloads with a CPU kernel of their own, and all forms of a structured group that has one."""
    found = []
    for group in groups:
        if isinstance(group, NativeFunction):
            found += [str(group.func.name)] if index.has_kernel(group) else []
            continue
        whole = group.structured and index.has_kernel(group)
        found += [str(f.func.name) for f in group.functions() if whole or index.has_kernel(f)]
    return found


def load_torch(path: Path, cache: Path | None = None) -> TorchOps:
    """Reads native_functions.yaml (and tags.yaml beside it); `cache` is a folder."""
    tags = path.parent / "tags.yaml"
    digest = hashlib.sha256()
    model = Path(torchgen.__file__).parent / "model.py"
    for file in (path, tags, model, Path(__file__)):
        digest.update(file.read_bytes())
    kept = cache / f"torch_{digest.hexdigest()[:16]}.pickle" if cache else None
    if kept and kept.is_file():
        with contextlib.suppress(Exception):
            return TorchOps(*pickle.loads(kept.read_bytes()))
    parsed = parse_native_yaml(str(path), str(tags))
    groups = get_grouped_native_functions(parsed.native_functions)
    cpu = cpu_functions(groups, parsed.backend_indices[DispatchKey.CPU])
    if kept:
        keep(kept, pickle.dumps((groups, cpu), protocol=5))
    return TorchOps(groups, cpu)


def keep(kept: Path, data: bytes) -> None:
    """Whole or not at all: generators run at the same time and share the folder."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    for old in kept.parent.glob("torch_*.pickle"):
        if old != kept:
            old.unlink(missing_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(data)
    part.replace(kept)
