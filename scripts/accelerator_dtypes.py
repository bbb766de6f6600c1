# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/accelerator-dtypes.md on the site of `make docs`, from ops/wide.yaml."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = {
    "en": {"func": "operator", "dtypes": "dtypes", "when": "only where", "indices": "argument", "why": "why"},
    "zh": {"func": "算子", "dtypes": "dtype", "when": "仅当", "indices": "参数", "why": "原因（英文）"},
}  # fmt: skip
# The lists of ops/wide.yaml in the order of the page, and what their tables show.
LISTS = {
    "missing": ("func", "dtypes"),
    "imprecise": ("func", "dtypes", "when"),
    "slow": ("func", "dtypes"),
    "indices": ("func", "indices"),
    "composites": (),
    "refused": ("func", "dtypes", "why"),
}


def cell(row: dict, column: str) -> str:
    value = row.get(column, "")
    if column == "dtypes":
        return ", ".join("float16, bfloat16" if d == "halves" else d for d in value or ["int32"])
    return value if column == "why" or not value else f"`{value}`"


def table(language: str) -> str:
    lists = yaml.safe_load((ROOT / "ops/wide.yaml").read_text(encoding="utf-8"))
    text = ""
    for name, columns in LISTS.items():
        text += f"## {name}\n\n"
        if not columns:
            text += ", ".join(f"`{operator}`" for operator in lists[name]) + "\n\n"
            continue
        heads = " | ".join(COLUMNS[language][column] for column in columns)
        text += f"| {heads} |\n|{'---|' * len(columns)}\n"
        for row in lists[name]:
            text += f"| {' | '.join(cell(row, column) for column in columns)} |\n"
        text += "\n"
    return text
