# SPDX-License-Identifier: Apache-2.0
"""seeds/004, the README of Ascend's PyTorch adapter: what it promises and what its FAQ is about, here.

Of the FAQ these concern other software and have no test: ARM kernels of PyTorch itself, XNNPACK and Breakpad (building
PyTorch), installing gcc and cmake by hand.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import interpreter
import pytest
import torch
import torch_npu
from gpu import loads_by_itself

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(torch_npu.__file__).parent


def run(code, cwd, check=True, exact=False, **variables):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    done = interpreter.run(["-c", code], cwd=cwd, env=env, timeout=120, exact=exact)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def doctor(cwd, *arguments, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith("NPU_")} | variables
    return interpreter.run(["-m", "opennpu", "doctor", *arguments], cwd=cwd, env=env, timeout=120)


# ---- installing ----


def test_the_installation_proves_itself(tmp_path):
    """Their test_div.py ends with OK; so does the doctor."""
    done = doctor(tmp_path)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("OK"), done.stdout + done.stderr


DIV = """
import numpy as np, torch, torch_npu
from torch_npu.testing.testcase import TestCase, run_tests

class TestDiv(TestCase):
    def test_div(self):
        for dtype in (np.float32, np.float16, np.int32):
            a = torch.from_numpy(np.arange(1, 13).reshape(3, 4).astype(dtype))
            b = torch.from_numpy(np.full((3, 4), 4, dtype))
            wanted = a.float() / b.float()
            self.assertRtolEqual(torch.div(a.to("npu"), b.npu()).cpu().float().numpy(), wanted.numpy())
            self.assertEqual(torch.div(a.npu(), 4, rounding_mode="floor").cpu(), (wanted.floor()).to(a.dtype))

if __name__ == "__main__":
    run_tests()
"""


def test_a_test_of_theirs_proves_it_too(tmp_path):
    """`python3 test_div.py`, with their classes: OK."""
    (tmp_path / "test_div.py").write_text(DIV)
    done = interpreter.run(["test_div.py"], cwd=tmp_path, timeout=120, exact=True)
    assert done.returncode == 0 and done.stderr.rstrip().endswith("OK"), done.stdout + done.stderr


def test_the_build_command_is_theirs():
    """`bash ci/build.sh --python=3.8`: the same script and option; a Python that is too old is named."""
    script = str(ROOT / "ci" / "build.sh")
    done = subprocess.run(["bash", script, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--python=" in done.stdout
    done = subprocess.run(["bash", script, "--python=3.8"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "python3.8 is not installed" in done.stderr or "3.10 or later" in done.stderr


def test_tools_that_are_too_old_are_said():
    """cmake and gcc below what is needed: cmake says both versions itself, C++20 is asked for by name."""
    lists = (ROOT / "CMakeLists.txt").read_text()
    assert re.search(r"cmake_minimum_required\(VERSION 3\.\d+\)", lists)
    assert "CMAKE_CXX_STANDARD 20" in lists and "CMAKE_CXX_STANDARD_REQUIRED ON" in lists


def test_versions_are_told(tmp_path):
    """The table of versions: ours is built for one series of torch, says so, and names both when they differ."""
    assert re.fullmatch(r"2\.\d+\.\d+\+opennpu", torch_npu.__version__)
    assert torch_npu.__version__.split(".")[:2] == torch.__version__.split(".")[:2]
    code = "import torch; torch.__version__ = '1.8.1'; import torch_npu"
    done = run(code, tmp_path, check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    last = done.stderr.strip().splitlines()[-1]
    assert "built for torch 2." in last and "found torch 1.8.1" in last


def test_requirements_leave_python_whole():
    """`typing` from an index broke Python; yaml and typing_extensions were missing while building."""
    files = ("requirements.txt", "requirements-dev.txt")
    needed = [word for name in files for word in (ROOT / name).read_text().split()]
    assert "typing" not in needed and "pyyaml" in needed
    project = (ROOT / "pyproject.toml").read_text()
    assert not re.search(r'"typing["=<> ]', project)


def test_pip_finds_no_conflict_with_torch():
    """The installed torch suits what our distributions ask for."""
    from packaging.requirements import Requirement

    seen = 0
    for name in ("opennpu", "torch_npu", "opennpu-tools"):
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        seen += 1
        for requirement in map(Requirement, wanted):
            if requirement.name == "torch":
                found = metadata.version("torch")
                assert requirement.specifier.contains(found, prereleases=True), (name, found)
    assert seen


def test_nothing_of_cann_and_no_blas_is_looked_for(tmp_path):
    """te-*.whl, libblas.so: neither is needed."""
    code = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('te', 'tbe', 'acl'): raise SystemExit('asked for ' + name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import torch, torch_npu\n"
        "assert torch.ones(2, device='npu').sum().item() == 2\n"
    )
    run(code, tmp_path, exact=True)
    if shutil.which("ldd") is None:
        pytest.skip("no ldd")
    libraries = [*PACKAGE.glob("lib/*.so"), *PACKAGE.glob("drivers/*.so")]
    assert libraries
    for library in libraries:
        asked = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
        assert "blas" not in asked.lower(), library


# ---- importing ----


BY_ITSELF = pytest.param("import torch; torch.zeros(1, device='npu')", marks=loads_by_itself)


@pytest.mark.parametrize("code", ["import torch_npu", BY_ITSELF])
def test_importing_in_the_source_folder_says_what_to_do(tmp_path, code):
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "python" / "torch_npu", tmp_path / "torch_npu", ignore=unwanted)
    # As a user's shell has it: the folder Python was started in is searched first.
    code = "import sys; sys.path.insert(0, '')\n" + code
    done = run(code, tmp_path, check=False, exact=True, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    text = " ".join(done.stderr.split())
    assert "imported from the source folder" in text and "start Python from another folder" in text


def test_the_root_of_the_tree_is_a_folder_like_any_other():
    run("import torch, torch_npu; assert torch.ones(1, device='npu').is_npu", ROOT, exact=True)


def test_no_warning_of_shallow_copies(tmp_path):
    """Tensor.set_data with another device: no warning, when importing or later."""
    code = (
        "import warnings; warnings.simplefilter('error')\n"
        "import torch, torch_npu\n"
        "x = torch.nn.Parameter(torch.ones(3)); x.data = x.data.npu()\n"
        "assert x.is_npu and x.sum().item() == 3\n"
        "m = torch.nn.Linear(2, 2); m.npu(); m.cpu(); m.npu().half()\n"
    )
    done = run(code, tmp_path, exact=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_python_without_lzma(tmp_path):
    code = (
        "import sys; sys.modules['_lzma'] = None\n"
        "import torch, torch_npu\n"
        "assert torch.ones(2, device='npu').sum().item() == 2\n"
    )
    run(code, tmp_path, exact=True)


# ---- devices ----


def test_no_device_is_named(tmp_path):
    """A container without the device: the doctor says what is missing and what to do."""
    done = doctor(tmp_path, ASCEND_RT_VISIBLE_DEVICES="9")
    assert done.returncode == 1
    assert "devices    FAILED: ASCEND_RT_VISIBLE_DEVICES='9' leaves none" in done.stdout
    done = doctor(tmp_path, NPU_DRIVER=str(tmp_path / "libnpu_acme.so"))
    assert done.returncode == 1 and "libnpu_acme.so" in done.stdout and "do:" in done.stdout


@pytest.mark.parametrize(
    "inside, words", [(True, "docker run --device="), (False, "check the hardware")]
)
def test_a_container_is_recognised(monkeypatch, inside, words):
    from opennpu import doctor as module

    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(module, "_in_container", lambda: inside)
    finding = module._no_device("acme")
    assert "driver acme finds no device" in str(finding) and words in finding.do
    assert ("container" in str(finding)) is inside


def test_several_cards(tmp_path):
    code = (
        "import torch, torch_npu\n"
        "assert torch.npu.device_count() == 4\n"
        "x = torch.arange(4.0, device='npu:3')\n"
        "assert (x.to('npu:1') * 2).tolist() == [0, 2, 4, 6] and x.device.index == 3\n"
    )
    run(code, tmp_path, NPU_HOST_DEVICES="4")


# ---- mixed precision ----


def test_apex(tmp_path):
    """`from apex import amp` works where Ascend's is not; the distribution has its name."""
    code = (
        "import torch, torch_npu\n"
        "from apex import amp\n"
        "model = torch.nn.Linear(4, 4).npu()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model, optimizer = amp.initialize(model, optimizer, opt_level='O2', loss_scale=128.0)\n"
        "loss = model(torch.ones(2, 4, device='npu')).square().mean()\n"
        "with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
        "    scaled_loss.backward()\n"
        "before = model.weight.detach().clone()\n"
        "optimizer.step()\n"
        "assert model.weight.dtype == torch.float16 and not torch.equal(before, model.weight)\n"
    )
    run(code, tmp_path, PYTHONPATH=str(ROOT / "compat" / "apex"))
    assert 'name = "apex"' in (ROOT / "compat" / "apex" / "pyproject.toml").read_text()


# ---- several processes ----

RANK = """
import os, sys, torch, torch_npu, datetime
import torch.distributed as dist
rank, address, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
named = {}
if address.startswith("tcp:"):
    named["init_method"] = f"{address}:{port}"
else:
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port)
dist.init_process_group("hccl", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=30), **named)
x = torch.full((3,), rank + 1.0, device="npu")
dist.all_reduce(x)
assert x.tolist() == [3.0] * 3
dist.destroy_process_group()
"""


def _speaks_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["::1", "localhost", "tcp://[::1]"])
def test_addresses_of_both_kinds(tmp_path, address):
    """`init_process_group` with an IPv6 address hung until its time-out; here it works."""
    if "::1" in address and not _speaks_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    started = [
        interpreter.start(["-c", RANK, str(rank), address, port], cwd=tmp_path) for rank in range(2)
    ]
    for process in started:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, out + err
