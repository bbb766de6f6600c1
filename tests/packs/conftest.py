# SPDX-License-Identifier: Apache-2.0
"""Packs are built once, as a user builds them, and unpacked where a child process finds them."""

import fcntl
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pack_site import Site, build

HERE = Path(__file__).resolve().parent


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
