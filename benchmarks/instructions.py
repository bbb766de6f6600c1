# SPDX-License-Identifier: Apache-2.0
"""Instructions per call or training step, on npu and on the CPU: a ratio that no other load disturbs.

python -m benchmarks.instructions [name ...]     operators of operators.py, programs of ladder.py, models of models.py

Needs valgrind (Debian: valgrind) and a C compiler. One thread, AVX2 at most: valgrind knows no more.
`callgrind_annotate --inclusive=yes FILE` on the files it names shows where they went.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import ladder, models, operators

HERE = Path(__file__).parent
CALLS, STEPS, WARM = 100, 3, 3
DEFAULT = ("add", "mul", "relu", "sum", "copy", "add-broadcast")


def _run(library: str, names: list[str]) -> None:
    """In the watched process: one dump per name and device."""
    import torch
    import torch_npu  # noqa: F401

    counter = ctypes.CDLL(library)
    torch.set_num_threads(1)
    for name in names:
        small = {**operators.SMALL_OPERATORS, **ladder.SMALL_CALLS}.get(name)
        for device in ("npu", "cpu"):
            fn = small(device) if small else models.build(name).to(device)
            for _ in range(max(WARM, _repeats(name))):
                fn()
            counter.count_from_here()
            for _ in range(_repeats(name)):
                fn()
            counter.count_to_here()


def _repeats(name: str) -> int:
    return CALLS if name in operators.SMALL_OPERATORS else STEPS


def _total(dump: Path) -> int:
    return int(re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)[1])


def main() -> int:
    if sys.argv[1:2] == ["--watched"]:
        _run(sys.argv[2], sys.argv[3:])
        return 0
    for tool in ("valgrind", "cc"):
        if shutil.which(tool) is None:
            print(f"benchmarks.instructions needs {tool}, which is not installed", file=sys.stderr)
            return 1
    names = sys.argv[1:] or list(DEFAULT)
    known = {*operators.SMALL_OPERATORS, *ladder.SMALL_CALLS, *models.CASES}
    if unknown := [name for name in names if name not in known]:
        print(
            f"not known: {', '.join(unknown)}; there are {', '.join(sorted(known))}",
            file=sys.stderr,
        )
        return 2
    folder = Path(tempfile.mkdtemp(prefix="npu-instructions-"))
    library = folder / "instructions.so"
    source = HERE / "instructions.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", str(source), "-o", str(library)], check=True)
    valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
    watched = [sys.executable, "-m", "benchmarks.instructions", "--watched", str(library), *names]
    dump = folder / "callgrind.out"
    subprocess.run(
        [*valgrind, f"--callgrind-out-file={dump}", *watched], check=True, cwd=HERE.parent
    )
    for i, name in enumerate(names):
        ours, theirs = folder / f"{dump.name}.{2 * i + 1}", folder / f"{dump.name}.{2 * i + 2}"
        a, b = _total(ours), _total(theirs)
        count = _repeats(name)
        print(f"{name:16} {a / b:.3f}x  {a // count:,} against {b // count:,}  {ours} {theirs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
