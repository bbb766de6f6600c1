# SPDX-License-Identifier: Apache-2.0
"""Packs are built once, as a user builds them, and unpacked where a child process finds them."""

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import interpreter
import pytest
from opennpu import pack_yaml

HERE = Path(__file__).resolve().parent


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

    def run(self, code: str, **variables):
        (self.scratch / "run").mkdir(exist_ok=True)
        environment = {
            **os.environ, "PYTHONPATH": str(self.folder),
            "XDG_CACHE_HOME": str(self.scratch / "cache"), **variables,
        }  # fmt: skip
        return interpreter.run(["-c", code], cwd=self.scratch / "run", env=environment, timeout=300)


@pytest.fixture(scope="session")
def guide_site(tmp_path_factory):
    """One build for all workers of a session."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "packs"
    shared.mkdir(exist_ok=True)
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "built").exists():
            shutil.copytree(HERE / "guide", shared / "guide")
            (shared / "built").write_text(str(build(shared / "guide")))
    return Path((shared / "built").read_text())


@pytest.fixture
def guide(guide_site, tmp_path):
    return Site(guide_site, tmp_path)


@pytest.fixture
def site_of(guide_site, tmp_path):
    """A copy of the guide's pack that a test may damage."""

    def make(change):
        shutil.copytree(guide_site, tmp_path / "site")
        change(tmp_path / "site" / "guide_ops")
        return Site(tmp_path / "site", tmp_path)

    return make
