# SPDX-License-Identifier: Apache-2.0
"""Writes the metadata that pip would install beside what `cmake --install` installed: name, version, entry points.

python distribution_metadata.py SITE_PACKAGES PROJECT_FOLDER...
"""

import sys
from pathlib import Path

import tomllib


def entry_points(groups: dict) -> str:
    lines = []
    for group, names in groups.items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in names.items()), ""]
    return "\n".join(lines)


def write(site: Path, folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project.get("version", "0")
    there = site / f"{name.replace('-', '_')}-{version}.dist-info"
    there.mkdir(exist_ok=True)
    needs = [f"Requires-Dist: {line}\n" for line in project.get("dependencies", [])]
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (there / "METADATA").write_text(head + "".join(needs), encoding="utf-8")
    groups = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    (there / "entry_points.txt").write_text(entry_points(groups), encoding="utf-8")


if __name__ == "__main__":
    for project in sys.argv[2:]:
        write(Path(sys.argv[1]), Path(project))
