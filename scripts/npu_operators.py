#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/npu-operators.md from ops/npu/*.yaml and torch_npu.ops; --check says whether it is current."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "codegen"))

import custom  # noqa: E402

PAGE = ROOT / "docs/npu-operators.md"
HEAD = """# npu operators

Made by scripts/npu_operators.py from ops/npu/*.yaml and python/torch_npu/ops. Do not edit.

`torch_npu.<name>`, `torch.ops.npu.<name>` and, for the last table, `torch.ops.atb.<name>` know every operator
below: {total} names, {done} implemented. A call of another raises ERR01007, which names the nearest implemented
one; `opennpu explain <name>` says what an operator computes.

Tested in float16, bfloat16 and float32 where a case of tests/npu_ops names them, gradients in float64, on npu and on cpu; arithmetic is
float32 (float64 for float64), statistics are float32 and results are rounded once. Quantised operators take int8 and int4, eight values an int32.
Gradient "yes" means that autograd goes through. Limits of Ascend's hardware on sizes and alignment do not hold here.
"Differences" is what was decided where Ascend's documents are unclear or contradict one another, and what is refused.
"""


def row(o) -> str:
    here = f"`torch_npu.ops.{o.module}`" if o.module else "no"
    gradient = "" if not o.module else "yes" if o.gradient else "no"
    return f"| `{o.name}` | {here} | {gradient} | {o.doc} | {o.note} |".replace(
        "k^T", "kᵀ"
    ).replace("w^T", "wᵀ")


def page(operators) -> str:
    text = HEAD.format(total=len(operators), done=sum(bool(o.module) for o in operators))
    for family in sorted({o.family for o in operators}, key=lambda f: (f == "atb", f)):
        text += f"\n## {family}\n\n| name | implemented | gradient | computes | differences |\n|---|---|---|---|---|\n"
        text += "\n".join(row(o) for o in operators if o.family == family) + "\n"
    return text


def main() -> int:
    operators = custom.load(
        sorted((ROOT / "ops/npu").glob("*.yaml")), ROOT / "python/torch_npu/ops"
    )
    text = page(operators)
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.relative_to(ROOT)} is not current: run scripts/npu_operators.py")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
