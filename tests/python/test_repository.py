# SPDX-License-Identifier: Apache-2.0
"""Promises of the tree itself: layers, documents, recorded speed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_layers() -> None:
    done = run(sys.executable, "scripts/check_layers.py")
    assert done.returncode == 0, done.stdout


def test_layers_can_fail(tmp_path: Path) -> None:
    tools = "optools/python/op_tools"
    files = {
        "src/driver/x.cpp": "#include <ATen/core/Tensor.h>\n",
        "optools/src/core/y.cpp": '#include "judge/rules.h"\n',
        f"{tools}/__init__.py": "",
        f"{tools}/core/up.py": "from op_tools.captures import reader\n",
        f"{tools}/captures/reader.py": "def late():\n    import op_tools.captures.values\n",
        f"{tools}/captures/values.py": "from op_tools.captures.reader import late\n",
        f"{tools}/attic/old.py": "",
        "scripts/check_layers.py": (ROOT / "scripts" / "check_layers.py").read_text(),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = tmp_path / "scripts" / "check_layers.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "src/driver/x.cpp: includes ATen/core/Tensor.h" in done.stdout
    assert "optools/src/core/y.cpp: includes judge/rules.h" in done.stdout
    assert f"{tools}/core/up.py: imports op_tools.captures.reader: sees only core" in done.stdout
    assert f"{tools}/attic: is no room" in done.stdout
    assert "op_tools.captures.reader -> op_tools.captures.values ->" in done.stdout


def test_file_local_names() -> None:
    done = run(sys.executable, "scripts/check_unity.py")
    assert done.returncode == 0, done.stdout


def test_file_local_names_can_clash(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "driver"
    folder.mkdir(parents=True)
    shared = "using T = int;\nnamespace a = std;\nint over({} x) {{ return x; }}\n"
    for file, own, argument in (("x", "int twin(int a) { return a; }", "int"),
                                ("y", "int twin(int b) { return -b; }\nstruct S {};", "long")):  # fmt: skip
        text = f"namespace npu {{\nnamespace {{\n{own}\n{shared.format(argument)}}}\n}}\n"
        (folder / f"{file}.cpp").write_text(text)
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "check_unity.py"
    script.write_text((ROOT / "scripts" / "check_unity.py").read_text())
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "src/driver: 'twin' is in x.cpp, y.cpp: share it in a header, or rename one"
    ]


def test_performance_page_is_what_was_measured() -> None:
    done = run(sys.executable, "benchmarks/check.py")
    assert done.returncode == 0, done.stdout


def test_links_between_documents() -> None:
    import re

    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken, broken
