# SPDX-License-Identifier: Apache-2.0
"""Builds packs as a user does, and runs children that see them."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import interpreter
from opennpu import pack_yaml


def opennpu(*arguments, cwd, **variables):
    return subprocess.run(
        [sys.executable, "-m", "opennpu", *map(str, arguments)], cwd=cwd, capture_output=True,
        text=True, env={**os.environ, **variables},
    )  # fmt: skip


def build(folder: Path) -> Path:
    """The wheel of a project, unpacked into site/ beside it."""
    # The compiler cache knows the sources by their place in the project.
    done = opennpu(
        "pack", "build", cwd=folder, CCACHE_BASEDIR=str(folder), CCACHE_NOHASHDIR="1",
        CMAKE_BUILD_PARALLEL_LEVEL="2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    site = folder.parent / f"site_{folder.name}"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


class Site:
    """A folder of packs, and children that see it."""

    def __init__(self, folder: Path, scratch: Path):
        self.folder, self.scratch = folder, scratch
        # Verdicts are a test's own; what torch's YAML says is the same for all, and takes seconds to read.
        own = scratch / "cache/opennpu"
        own.mkdir(parents=True, exist_ok=True)
        for parsed in pack_yaml.cache().glob("*.pickle"):
            if not (own / parsed.name).exists():
                (own / parsed.name).symlink_to(parsed)

    def run(self, code: str, cwd: Path | None = None, **variables):
        (self.scratch / "run").mkdir(exist_ok=True)
        environment = {
            **os.environ, "PYTHONPATH": str(self.folder),
            "XDG_CACHE_HOME": str(self.scratch / "cache"), **variables,
        }  # fmt: skip
        return interpreter.run(
            ["-c", code], cwd=cwd or self.scratch / "run", env=environment, timeout=300
        )
