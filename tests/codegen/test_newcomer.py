# SPDX-License-Identifier: Apache-2.0
"""docs/adding-an-operator.md, followed: its lines, taken away and put back, make an operator."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/adding-an-operator.md"

# Runs in the copy's installation: which kernel erfinv used.
RUN = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
import torch, torch_npu
assert torch_npu.__file__.startswith(sys.argv[1]), torch_npu.__file__
x = torch.linspace(-0.9, 0.9, 7)
y = x.npu().requires_grad_()
torch.testing.assert_close(torch.erfinv(y).detach().cpu(), torch.erfinv(x))
torch.erfinv(y).sum().backward()
torch.testing.assert_close(x.npu().erfinv_().cpu(), torch.erfinv(x))
torch.testing.assert_close(torch.erfinv(x.npu(), out=torch.empty(7, device="npu")).cpu(), torch.erfinv(x))
driver = ctypes.CDLL(os.environ["NPU_DRIVER"])
driver.npu_faulty_take_tally.restype = ctypes.c_char_p
print(driver.npu_faulty_take_tally().decode())
"""


def diffs() -> list[tuple[str, str, str]]:
    """(file, the lines before, the new lines) of each diff block of the page."""
    found = []
    for block in re.findall(
        r"```diff\n--- (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S
    ):
        lines = block[1].splitlines(keepends=True)
        context = "".join(line[1:] for line in lines if line.startswith(" "))
        new = "".join(line[1:] for line in lines if line.startswith("+"))
        found.append((block[0], context, new))
    return found


def test_the_page_adds_five_lines_that_stand_in_the_tree():
    lines = 0
    for file, context, new in diffs():
        assert context + new in (ROOT / file).read_text(encoding="utf-8"), (file, new)
        lines += new.count("\n")
    assert lines == 5


class Copy:
    """A copy of the tree with its own build folder and installation."""

    def __init__(self, folder: Path):
        self.tree, self.site = folder / "tree", folder / "site"
        self.build = self.tree / "build/dev"  # inside, so that a compiler cache knows the paths
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        names = filter(None, listed.stdout.split("\0"))
        for name in (n for n in names if (ROOT / n).exists()):  # a deletion may not be staged yet
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_bytes((ROOT / name).read_bytes())

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.tree / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    def run(self, *command: str) -> str:
        env = {**os.environ, "CCACHE_BASEDIR": str(self.tree), "CCACHE_NOHASHDIR": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def install(self) -> str:
        self.run(
            "cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja",
            "-DNPU_BUILD_TESTS=OFF", f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DCMAKE_INSTALL_PREFIX={self.site}",
        )  # fmt: skip
        return self.run("cmake", "--build", str(self.build), "--target", "install")

    def calls(self, folder: Path) -> set[str]:
        """What the driver ran: 'aten::erfinv unary.erfinv'."""
        sys.path.insert(0, str(ROOT / "tests/python"))
        from faulty import faulty_environment

        env = {**os.environ, **faulty_environment()}
        env["NPU_FAULTY_BASE"] = str(self.site / "torch_npu/drivers/libnpu_host.so")
        env |= {"NPU_FAULTY_TALLY": "1", "NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"}
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(self.site)],
            capture_output=True, text=True, env=env, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        return {" ".join(line.split()[:2]) for line in lines if "erfinv" in line}


@pytest.mark.slow
def test_following_the_page_adds_the_operator(tmp_path):
    copy = Copy(tmp_path)
    # The contract's numbers stay: a code is never taken back.
    steps = [step for step in diffs() if step[0] != "ops/kinds.yaml"]
    for file, context, new in steps:
        copy.edit(file, context + new, context)
    copy.install()
    assert copy.calls(tmp_path) == set(), "right without them, by PyTorch's CPU kernel"
    for file, context, new in steps:
        copy.edit(file, context, context + new)
    copy.install()
    assert copy.calls(tmp_path) >= {
        "aten::erfinv unary.erfinv",
        "aten::erfinv_ unary.erfinv",
        "aten::erfinv.out unary.erfinv",
    }
