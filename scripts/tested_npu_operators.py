#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ops/npu_tested.txt from the cases of tests/npu_ops; --check says whether it is current.

Needs an installed build, because the cases call it. `opennpu ops --custom` shows the file's content.
"""

import functools
import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "ops/npu_tested.txt"
TESTS = ROOT / "tests"
HEAD = """# SPDX-License-Identifier: Apache-2.0
# Made by scripts/tested_npu_operators.py from tests/npu_ops. Do not edit.
# Operator, dtypes its cases run in, file of the oracle. "-" where the dtypes are those of the file's own tests.
"""
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


def oracle_file(case) -> str:
    """The file that defines the reference; that of the case where the reference is PyTorch's."""
    reference = case.reference
    while isinstance(reference, functools.partial):
        reference = reference.func
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(reference)))
    except TypeError:  # a built-in function of PyTorch
        path = Path(case.file)
    path = path if path.is_relative_to(TESTS) else Path(case.file)
    return path.relative_to(ROOT).as_posix()


def lines() -> list[str]:
    sys.path[:0] = [str(TESTS / "npu_ops"), str(TESTS)]
    import conftest  # noqa: F401  reads all cases
    from table import CASES
    from test_values import SPECIAL, SPECIAL_FILES

    found: dict[str, tuple[set, set]] = {}
    for case in CASES:
        name = case.op.rpartition("::")[2].partition(".")[0]
        dtypes, files = found.setdefault(name, (set(), set()))
        if case.reference is not None:
            dtypes |= {SHORT[str(d).removeprefix("torch.")] for d in case.dtypes}
            files.add(oracle_file(case))
    texts = {f: (ROOT / f).read_text(encoding="utf-8") for f in SPECIAL_FILES}
    for name in SPECIAL:
        _, files = found.setdefault(name, (set(), set()))
        word = name.removesuffix("_get_max_workspace").removeprefix("_npu_")
        files |= {f for f in [f for f in texts if word in texts[f]][:1] if not files}
    return [
        f"{name} {','.join(sorted(dtypes)) or '-'} {','.join(sorted(files))}"
        for name, (dtypes, files) in sorted(found.items())
        if files
    ]


def main() -> int:
    text = HEAD + "\n".join(lines()) + "\n"
    if "--check" not in sys.argv:
        LIST.write_text(text, encoding="utf-8")
        return 0
    if LIST.read_text(encoding="utf-8") == text:
        return 0
    print(
        f"{LIST.relative_to(ROOT)} is old: run {Path(__file__).relative_to(ROOT)}", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
