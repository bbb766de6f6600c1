# SPDX-License-Identifier: Apache-2.0
"""npu tensors and modules as arguments of processes that are spawned."""

import subprocess
import sys
import textwrap

from programs import program

SCRIPT = program(__file__, "_script")


def test_arguments_of_spawned_processes(tmp_path):
    script = tmp_path / "spawns.py"  # children import the main module by its file
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.strip() == "done", done.stdout + done.stderr
