#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/npu-operators.md from ops/npu/*.yaml and torch_npu.ops; --check says whether it is current."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "codegen"))

sys.path.append(str(ROOT / "python"))

import custom  # noqa: E402
from kinds_model import load_kinds  # noqa: E402
from opennpu.ops import IN_TREE  # noqa: E402

PAGE = ROOT / "docs/npu-operators.md"
# What the READMEs say of torch_npu's own names.
COUNTS = {
    "README.md": "{done} of {total} implemented",
    "README.zh-CN.md": "{total} 个中实现了 {done} 个",
}
HEAD = """# npu operators

Made by scripts/npu_operators.py from ops/npu/*.yaml and python/torch_npu/ops. Do not edit.

`torch_npu.<name>`, `torch.ops.npu.<name>` and, for the last table, `torch.ops.atb.<name>` know every operator
below: {total} names, {done} implemented. A call of another raises ERR01007, which names the reason and the nearest
implemented one; `opennpu explain <name>` says what an operator computes. An operator is defined when Python first asks for it; before C++ looks it up
or `torch.jit.load` reads a file that calls it, call `torch_npu.utils.define_operators()`, or name the operators.

Each implemented operator is judged by a reference in float64 that was written from the documents and calls no operator of npu (the test refuses
one that does); a few that draw random numbers, write into arguments or communicate have tests of their own. Tested in float16, bfloat16 and float32 where a case of tests/npu_ops names them, gradients in float64, on npu and on cpu; arithmetic is
float32 (float64 for float64), statistics are float32 and results are rounded once. Quantised operators take int8 and int4, eight values an int32.
The operators of the MX formats take fp8, fp4 (two values a byte) and hifloat8, with shared exponents in uint8; casts to these formats saturate.
Gradient "yes" means that autograd goes through. Limits of Ascend's hardware on sizes and alignment do not hold here.
"Kind" names the kind that the usual calls run as, on drivers that have it; all else is a composition of PyTorch's operators.
Results may be given as one argument, as programs for Ascend do: `torch_npu.npu_apply_adam_w(..., out=(var, m, v))`,
`torch_npu.npu_fused_infer_attention_score.out(..., out=[attention_out, softmax_lse])`; a result that was not asked for is left as it is.
"Differences" is what was decided where Ascend's documents are unclear or contradict one another, and what is refused.
"""


def row(o) -> str:
    here = f"`torch_npu.ops.{o.module}`" if o.module else "no"
    gradient = "" if not o.module else "yes" if o.gradient else "no"
    kind = ", ".join(f"`{k}`" for k in o.kinds)
    instead = f" Use `{o.nearest}`." if o.nearest else ""
    note = f"Refused: {o.refused}.{instead}" if o.refused else o.note
    return f"| `{o.name}` | {here} | {gradient} | {kind} | {o.doc} | {note} |".replace(
        "k^T", "kᵀ"
    ).replace("w^T", "wᵀ")


def page(operators) -> str:
    text = HEAD.format(total=len(operators), done=sum(bool(o.module) for o in operators))
    for family in sorted({o.family for o in operators}, key=lambda f: (f == "atb", f)):
        text += f"\n## {family}\n\n| name | implemented | gradient | kind | computes | differences |\n|---|---|---|---|---|---|\n"
        text += "\n".join(row(o) for o in operators if o.family == family) + "\n"
    return text


def old_counts(operators) -> list[str]:
    """READMEs with other numbers than these."""
    own = [o for o in operators if o.namespace == "npu" and o.name not in IN_TREE]
    numbers = {"total": len(own), "done": sum(bool(o.module) for o in own)}
    return [
        f"{name} is not current: it should say '{words.format(**numbers)}'"
        for name, words in COUNTS.items()
        if words.format(**numbers) not in (ROOT / name).read_text(encoding="utf-8")
    ]


def main() -> int:
    operators = custom.load(
        sorted((ROOT / "ops/npu").glob("*.yaml")),
        ROOT / "python/torch_npu/ops",
        load_kinds(ROOT / "ops/kinds.yaml"),
    )
    text = page(operators)
    if "--check" in sys.argv[1:]:
        if old := old_counts(operators):
            print("\n".join(old))
            return 1
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.relative_to(ROOT)} is not current: run scripts/npu_operators.py")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
