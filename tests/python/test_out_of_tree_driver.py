# SPDX-License-Identifier: Apache-2.0
"""A vendor's driver, built from the installed package alone, trains models through the ladder."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch_npu
from programs import program

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = Path(torch_npu.__file__).parent

TRAIN = program(__file__, "_train")


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    """Path of libnpu_acme.so, made in a folder that knows nothing of this repository."""
    folder = tmp_path_factory.mktemp("acme")
    source = folder / "source"
    shutil.copytree(REPOSITORY / "examples" / "driver_out_of_tree", source)
    build = folder / "build"
    for command in (
        ["cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={PACKAGE}"],
        ["cmake", "--build", build],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "drivers" / "libnpu_acme.so"


def test_it_exports_one_symbol(acme):
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", acme], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["npu_driver_entry"]


def test_it_is_under_300_lines(acme):
    source = REPOSITORY / "examples" / "driver_out_of_tree"
    assert sum(len(f.read_text().splitlines()) for f in source.glob("*.cpp")) < 300


def test_it_trains_a_gpt(acme, run_python, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    code = f"import runpy, sys; sys.argv = ['train', {str(REPOSITORY)!r}]; "
    code += f"runpy.run_path({str(script)!r})"
    assert "trained" in run_python(code, NPU_DRIVER=str(acme)).stdout


def test_it_is_found_by_name(acme, run_python):
    code = "import torch, torch_npu; print(torch.npu.get_device_name(0))"
    found = run_python(code, NPU_DRIVER="acme", NPU_DRIVER_PATH=os.fspath(acme.parent))
    assert found.stdout.strip() == "Acme One"
