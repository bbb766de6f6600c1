# SPDX-License-Identifier: Apache-2.0
"""Promises of the tree itself: layers, documents, recorded speed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_layers_can_fail(tmp_path: Path) -> None:
    tools = "optools/python/op_tools"
    files = {
        "src/driver/x.cpp": "#include <ATen/core/Tensor.h>\n",
        "optools/src/core/y.cpp": '#include "judge/rules.h"\n',
        "src/dist/z.cpp": "// runs_inline in a comment\nif (driver.device_is_cpu()) {}\n",
        "src/aten/twin/w.cpp": "bool b = p.host_access != NPU_HOST_ACCESS_NONE;\n",
        "src/runtime/capabilities.cpp": "bool b = p.host_access != NPU_HOST_ACCESS_NONE;\n",
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
    assert "src/dist/z.cpp:2: device_is_cpu: ask for a capability" in done.stdout
    assert "src/aten/twin/w.cpp:1: host_access: ask for a capability" in done.stdout
    assert "z.cpp:1:" not in done.stdout and "capabilities.cpp:" not in done.stdout
    assert f"{tools}/core/up.py: imports op_tools.captures.reader: sees only core" in done.stdout
    assert f"{tools}/attic: is no room" in done.stdout
    assert "op_tools.captures.reader -> op_tools.captures.values ->" in done.stdout


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
