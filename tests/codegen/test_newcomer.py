# SPDX-License-Identifier: Apache-2.0
"""docs/adding-an-operator.md, followed: its lines, taken away and put back, make an operator."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import interpreter
import pytest
from programs import program

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/adding-an-operator.md"

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"

# Which kernel erfinv used, in the installation whose folder is given, or in this one.
RUN = program(__file__, "_run")


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


def calls(folder: Path, *site: Path) -> set[str]:
    """What the driver ran: 'aten::erfinv unary.erfinv'. In the installation at `site`, or in this one."""
    sys.path.insert(0, str(ROOT / "tests/python"))
    from faulty import faulty_environment

    env = {**os.environ, **faulty_environment()}
    for place in site:
        env["NPU_FAULTY_BASE"] = str(place / "torch_npu/drivers/libnpu_host.so")
    env |= {"NPU_FAULTY_TALLY": "1", "NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"}
    done = interpreter.run(["-c", RUN, *site], env=env, cwd=folder, exact=bool(site))
    assert done.returncode == 0, done.stderr
    return {" ".join(line.split()[:2]) for line in done.stdout.splitlines() if "erfinv" in line}


WITH_THE_LINES = {
    "aten::erfinv unary.erfinv",
    "aten::erfinv_ unary.erfinv",
    "aten::erfinv.out unary.erfinv",
}


def test_the_lines_make_the_operator(tmp_path):
    """What the generator makes of the operator lists without the page's lines, and with them."""
    made = {}
    for form in ("without", "with"):
        ops = tmp_path / form
        shutil.copytree(ROOT / "ops/aten", ops)
        for file, context, new in diffs():
            if form == "without" and file.startswith("ops/aten/"):
                path = ops / Path(file).name
                path.write_text(path.read_text("utf-8").replace(context + new, context), "utf-8")
        done = interpreter.run(
            [ROOT / "codegen/aten.py", "--adapters", "--kinds", ROOT / "ops/kinds.yaml",
             "--ops", ops, "--seen", ROOT / "ops/seen_host.txt", "--out", tmp_path / "out"],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        text = "".join(f.read_text("utf-8") for f in (tmp_path / "out").glob("*.cpp"))
        made[form] = set(re.findall(r'"aten::(erfinv(?:_|\.out)?)"', text))
    assert made == {"without": set(), "with": {"erfinv", "erfinv_", "erfinv.out"}}


def test_the_operator_of_the_page_runs_on_the_driver(tmp_path):
    assert calls(tmp_path) >= WITH_THE_LINES


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


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="make test-full: compiles the plugin twice")
def test_following_the_page_adds_the_operator(tmp_path):
    copy = Copy(tmp_path)
    # The contract's numbers stay: a code is never taken back.
    steps = [step for step in diffs() if step[0] != "ops/kinds.yaml"]
    for file, context, new in steps:
        copy.edit(file, context + new, context)
    copy.install()
    assert calls(tmp_path, copy.site) == set(), "right without them, by PyTorch's CPU kernel"
    for file, context, new in steps:
        copy.edit(file, context, context + new)
    copy.install()
    assert calls(tmp_path, copy.site) >= WITH_THE_LINES
