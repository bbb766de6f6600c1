#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/accelerator-dtypes.md from ops/wide.yaml and PyTorch's OpInfo; --check says whether it is current."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/opinfo"))
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

import yaml  # noqa: E402
from accelerator import cuda_only, full_name, why_refused  # noqa: E402

PAGE = ROOT / "docs/accelerator-dtypes.md"
HEAD = """# Dtypes as accelerators have them

Made by scripts/accelerator_dtypes.py from ops/wide.yaml. Do not edit.

The host device falls back on PyTorch's CPU kernels, which lack dtypes that accelerators have and round some halves after every
step. What is listed here is computed in a wider dtype and rounded once, on the CPU rungs of the ladder (architecture.md); a driver's
own kernels are not touched. Each is tested against float64 (tests/opinfo/test_accelerator_dtypes.py, test_half_precision.py).

PyTorch's OpInfo lists {total} pairs of operator and dtype for CUDA and not for the CPU: {works} work on npu, {refused} are refused for
the reasons below.
"""


def table(head: str, rows: list[tuple]) -> str:
    columns = head.split("|")
    lines = [f"| {' | '.join(c.strip() for c in columns)} |", "|" + "---|" * len(columns)]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows]) + "\n"


def spelled(row: dict) -> str:
    return ", ".join(
        "float16, bfloat16" if d == "halves" else d for d in row.get("dtypes", ("int32",))
    )


def page() -> str:
    rows = yaml.safe_load((ROOT / "ops/wide.yaml").read_text(encoding="utf-8"))
    listed = cuda_only()
    refused = [(op, d) for op, d in listed if why_refused(op, d)]
    text = HEAD.format(total=len(listed), works=len(listed) - len(refused), refused=len(refused))
    text += "\n## The CPU has no kernel\n\n"
    text += table("operator | dtypes", [(f"`{r['func']}`", spelled(r)) for r in rows["missing"]])
    text += (
        "\n## The CPU's kernel is more than 2 units in the last place off\n\n"
        "Against float64, where one rounding of the float32 result is at most 1 off; found by scripts/wide_sweep.py over OpInfo's samples.\n"
        "Left as they are: `sub` with a number (the CPU rounds the number first), `div` with a rounding mode (a jump), composites that round\n"
        "between their steps on every device (`_trilinear`), and sums into a tensor (`index_put_`, `index_add_`, `scatter_add_`), where casting\n"
        "the whole tensor would cost more than the sum; CUDA adds halves one by one there too.\n\n"
    )
    text += table(
        "operator | dtypes | only where",
        [
            (f"`{r['func']}`", spelled(r), f"`{r['when']}`" if "when" in r else "")
            for r in rows["imprecise"]
        ],
    )
    text += "\n## int32 indices\n\n"
    text += table(
        "operator | argument", [(f"`{r['func']}`", f"`{r['indices']}`") for r in rows["indices"]]
    )
    text += "\n## Composites that are cast around, float16 and complex32\n\n"
    text += ", ".join(f"`{name}`" for name in rows["composites"]) + "\n"
    text += "\n## Refused\n\n"
    text += table(
        "operator | dtypes | why",
        [(f"`{r['func']}`", spelled(r), r["why"]) for r in rows["refused"]],
    )
    text += "\n## What OpInfo lists for CUDA and not for the CPU\n\n"
    names: dict[str, list[str]] = {}
    for op, dtype in listed:
        state = " (refused)" if why_refused(op, dtype) else ""
        names.setdefault(full_name(op), []).append(str(dtype)[6:] + state)
    return text + table("operator | dtypes", [(f"`{n}`", ", ".join(d)) for n, d in names.items()])


def main() -> int:
    made = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != made:
            print(f"{PAGE.relative_to(ROOT)} is old: run make docs-dtypes", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
