# SPDX-License-Identifier: Apache-2.0
"""`opennpu driver new`, `where` and `check`, as a vendor runs them in a folder of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch_npu

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(torch_npu.__file__).parent


def command(*arguments, at, **env):
    return subprocess.run(
        [sys.executable, "-m", "opennpu", "driver", *arguments],
        cwd=at, env={**os.environ, **env}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    """The project as it is made, built with host code kept out of device memory: rung 5."""
    folder = tmp_path_factory.mktemp("vendor")
    made = command("new", "acme", at=folder)
    assert made.returncode == 0, made.stderr
    where = command("where", at=folder).stdout.strip()
    assert Path(where) == PACKAGE
    driver = folder / "acme/driver.cpp"
    text = driver.read_text()
    assert "NPU_HOST_ACCESS_COHERENT" in text
    driver.write_text(text.replace("NPU_HOST_ACCESS_COHERENT", "NPU_HOST_ACCESS_NONE"))
    for step in (
        ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={where}"],
        ["cmake", "--build", "build"],
    ):
        done = subprocess.run(step, cwd=folder / "acme", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stdout + done.stderr
    return folder / "acme"


def test_the_skeleton_speaks_of_the_new_driver(acme):
    for file in acme.glob("*.*"):
        words = re.sub(r"nullptr|must not be null|pointers is null", "", file.read_text())
        assert not re.search(r"null|@", words, re.IGNORECASE), file
    assert '"acme", "Acme"' in (acme / "driver.cpp").read_text()


def test_it_trains_a_gpt_through_rung_5(acme, run_python):
    code = f"""
import sys, torch, torch_npu
sys.path.insert(0, {str(ROOT)!r})
from benchmarks.models import build
assert torch.npu.get_device_name(0) == "Acme device"
curves = []
for device in ("npu:0", "cpu"):
    torch.manual_seed(0)
    step = build("gpt-tiny").to(device)
    curves.append([float(step()) for _ in range(3)])
assert curves[0][-1] < curves[0][0], curves
torch.testing.assert_close(*map(torch.tensor, curves), rtol=1e-4, atol=0)
rungs = {{row["rung"] for row in torch.npu.fallback_stats()}}
assert 5 in rungs and 4 not in rungs, rungs
"""
    library = acme / "build/drivers/libnpu_acme.so"
    run_python(code, NPU_DRIVER=str(library), NPU_FALLBACK="silent")


def test_the_kit_judges_it(acme):
    library = acme / "build/drivers/libnpu_acme.so"
    done = command("check", str(library), at=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^fill +passes", done.stdout, re.MULTILINE), done.stdout


def test_it_declares_no_flag_that_its_kernels_ignore(acme):
    """Kernels added to it would silently read conjugated and negated views as they lie."""
    text = (acme / "driver.cpp").read_text(encoding="utf-8")
    known = text[text.index('"acme", "Acme"') : text.index("&device_table")]
    assert "NPU_TENSOR_CONTIGUOUS" in known
    assert not re.search(r"~0u|NPU_TENSOR_(CONJ|NEG)", known), known


def test_it_overwrites_nothing(acme):
    before = {f: f.read_bytes() for f in acme.glob("*.*")}
    done = command("new", "acme", at=acme.parent)
    assert done.returncode == 2 and "exists" in done.stderr
    assert {f: f.read_bytes() for f in acme.glob("*.*")} == before


@pytest.mark.parametrize("name", ["Acme", "1st", "a-b", "../acme", "", "x" * 33, "host"])
def test_bad_names_are_refused(name, tmp_path):
    done = command("new", name, at=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
