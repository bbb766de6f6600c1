# SPDX-License-Identifier: Apache-2.0
"""scripts/cuda_wheel.py: a wheel that pip installs offline, with the driver beside the others."""

import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cuda_wheel.py"


def make(library, folder):
    return subprocess.run(
        [sys.executable, SCRIPT, library, folder], capture_output=True, text=True, timeout=60
    )


def test_pip_installs_the_driver_where_it_is_looked_for(tmp_path):
    library = tmp_path / "libnpu_cuda.so"
    library.write_bytes(b"\x7fELF GLIBC_2.17 GLIBC_2.28 GLIBC_2.3.4")
    made = make(library, tmp_path / "dist")
    assert made.returncode == 0, made.stderr
    wheel = Path(made.stdout.strip())
    assert "manylinux_2_28_" in wheel.name
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, wheel],
        check=True,
        timeout=120,
    )  # fmt: skip
    installed = site / "torch_npu" / "drivers" / "libnpu_cuda.so"
    assert installed.read_bytes() == library.read_bytes()
    (about,) = site.glob("opennpu_cuda-*.dist-info")
    metadata = Distribution.at(about).metadata
    assert metadata["Name"] == "opennpu-cuda"
    assert metadata["Requires-Dist"] == f"opennpu=={metadata['Version']}"


def test_the_same_driver_gives_the_same_wheel(tmp_path):
    library = tmp_path / "libnpu_cuda.so"
    library.write_bytes(b"driver")
    wheels = [Path(make(library, tmp_path / name).stdout.strip()) for name in ("a", "b")]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


def test_without_a_driver_it_says_how_to_get_one(tmp_path):
    made = make(tmp_path / "none.so", tmp_path / "dist")
    assert made.returncode != 0 and "make cuda" in made.stderr
    assert not (tmp_path / "dist").exists()
