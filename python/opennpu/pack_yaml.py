# SPDX-License-Identifier: Apache-2.0
"""A pack's YAML read by the generator that ships with the wheel (share/opennpu/codegen)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opennpu import conformance


class YamlError(Exception):
    """Faults in the YAML as lines "file:line: text"."""


def share() -> Path:
    package = conformance.package()
    folder = package / "share/opennpu" if package else None
    if folder is None or not (folder / "codegen/aten.py").exists():
        raise YamlError("this package lacks share/opennpu/codegen. Reinstall the opennpu wheel.")
    return folder


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "opennpu"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load(yaml_file: Path):
    """The generator's model of a pack. Raises YamlError."""
    try:
        import yaml  # noqa: F401
    except ImportError:
        raise YamlError("PyYAML is not installed here: pip install pyyaml.") from None
    folder = str(share() / "codegen")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import yaml_reader

    import aten

    try:
        torch_ops = aten.load_torch(aten.packaged_yaml(), cache())
        pack = aten.load_pack([yaml_file], torch_ops, aten.load_kinds(share() / "ops/kinds.yaml"))
        aten.check_by_hand(pack)
        return pack
    except yaml_reader.YamlError as error:
        raise YamlError(str(error)) from None


def operators(yaml_file: Path) -> list[dict]:
    """A row for each operator: overload, section, line, name of the function; the schema of new ones."""
    pack = load(yaml_file)
    import aten_hand
    from torchgen.api import cpp

    rows = []
    for operator in pack.declared():
        function = operator.primary
        row = {
            "overload": f"{function.namespace}::{function.func.name}",
            "section": operator.section,
            "line": operator.where.line,
            "function": cpp.name(function.func),
        }
        if operator.custom:
            row["schema"] = aten_hand.registered_schema(function)
        rows.append(row)
    return rows


def methods(yaml_file: Path) -> list[str]:
    """Operators that are also methods of Tensor."""
    pack = load(yaml_file)
    import aten_hand

    return sorted(aten_hand.methods(pack.declared()))
