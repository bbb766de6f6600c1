#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/npu-operators.md on the site of `make docs`. Run as a program, it checks the counts in the READMEs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "codegen"))

sys.path.append(str(ROOT / "python"))

import custom  # noqa: E402
from kinds_model import load_kinds  # noqa: E402
from opennpu.ops import IN_TREE  # noqa: E402

# What the READMEs say of torch_npu's own names.
COUNTS = {
    "README.md": "{done} of {total} implemented",
    "README.zh-CN.md": "{total} 个中实现了 {done} 个",
}
COLUMNS = {
    "en": ("name", "implemented", "gradient", "kind", "computes", "differences"),
    "zh": ("名字", "实现", "梯度", "kind", "计算什么（英文）", "差异（英文）"),
}


def load() -> list:
    return custom.load(
        sorted((ROOT / "ops/npu").glob("*.yaml")),
        ROOT / "python/torch_npu/ops",
        load_kinds(ROOT / "ops/kinds.yaml"),
    )


def row(o) -> str:
    here = f"`torch_npu.ops.{o.module}`" if o.module else "no"
    gradient = "" if not o.module else "yes" if o.gradient else "no"
    kind = ", ".join(f"`{k}`" for k in o.kinds)
    instead = f" Use `{o.nearest}`." if o.nearest else ""
    note = f"Refused: {o.refused}.{instead}" if o.refused else o.note
    return f"| `{o.name}` | {here} | {gradient} | {kind} | {o.doc} | {note} |".replace(
        "k^T", "kᵀ"
    ).replace("w^T", "wᵀ")


def table(language: str) -> str:
    operators, columns = load(), COLUMNS[language]
    text = ""
    for family in sorted({o.family for o in operators}, key=lambda f: (f == "atb", f)):
        text += f"## {family}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
        text += "\n".join(row(o) for o in operators if o.family == family) + "\n\n"
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
    old = old_counts(load())
    print("\n".join(old), end="")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
