# SPDX-License-Identifier: Apache-2.0
"""`opennpu explain ERR01007` and `opennpu explain aten::linalg_lstsq`, in Chinese or English."""

from __future__ import annotations

import argparse
import difflib
import json
import locale
import re
import sys
from pathlib import Path

FAULTS = Path(__file__).with_name("faults.json")
LAST_OF_DRIVER = 3  # rungs beyond it are PyTorch's CPU kernels
LAST = 5
HEADINGS = {
    "en": {"seen": "What is seen", "cause": "Cause", "effect": "Effect", "do": "What to do"},
    "zh": {"seen": "现象", "cause": "原因", "effect": "影响", "do": "处理方法"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", help="an error code (ERR01007) or an operator (aten::fmax)")
    parser.add_argument("--lang", choices=("zh", "en"), help="default: the locale's, else English")


def language(asked: str | None) -> str:
    if asked:
        return asked
    name = locale.setlocale(locale.LC_CTYPE, None) or ""
    return "zh" if name.lower().startswith("zh") else "en"


def show(title: str, parts: dict[str, str], lang: str) -> None:
    print(title)
    for key, heading in HEADINGS[lang].items():
        print(f"\n{heading}:")
        print("  " + parts[key].replace("\n", "\n  "))


def explain_code(code: str, lang: str, faults: dict) -> int:
    module, kind = code[3:5], code[5:]
    if module not in faults["modules"] or kind not in faults["kinds"]:
        print(
            f"no error code {code}: it is ERR, a module ({', '.join(faults['modules'])}) "
            f"and a kind ({', '.join(faults['kinds'])})",
            file=sys.stderr,
        )
        return 2
    special = faults["codes"].get(code, {})
    parts = {**faults["kinds"][kind][lang], **special.get(lang, {})}
    where = faults["modules"][module]
    show(f"{code} {where['name']} {faults['kinds'][kind]['text']} ({where[lang]})", parts, lang)
    return 0


def driver_rungs() -> dict[str, int]:
    """The rung of every overload that can reach a driver, and the lowest one that this driver needs."""
    from opennpu import ops

    found = ops.collect(argparse.Namespace(pattern=None, profile=None))
    return {row["overload"]: row["rung"] for row in found["operators"]} | {
        "lowest": found["cpu_rung"]
    }


def explain_custom(name: str, lang: str, faults: dict) -> bool:
    """Operators of Ascend's own: what one computes, and whether it is implemented."""
    import torch_npu

    namespace, _, bare = name.rpartition("::")
    for space in (namespace,) if namespace else ("npu", "atb"):
        row = torch_npu._C._find_custom(space, bare.partition(".")[0])
        if row is not None:
            module, doc, nearest = row
            texts = faults["operator"]["custom" if module else "custom_missing"][lang]
            parts = {k: t.format(doc=doc, module=module, nearest=nearest) for k, t in texts.items()}
            show(f"{space}::{bare}", parts, lang)
            return True
    return False


DTYPES = {"Half": "float16", "BFloat16": "bfloat16", "Float": "float32", "Double": "float64"}
COMPUTED = {
    "en": {
        "head": "Dtypes on the CPU rungs",
        "wide": "{dtype}: computed in {wide}, rounded once",
        "same": "{dtype}: by PyTorch's CPU kernel as it is",
        "when": ", where '{when}' is given",
    },
    "zh": {
        "head": "CPU 各级上的 dtype",
        "wide": "{dtype}：在 {wide} 中计算，只舍入一次",
        "same": "{dtype}：直接使用 PyTorch 的 CPU 核函数",
        "when": "，当给出 '{when}' 时",
    },
}


def show_dtypes(name: str, lang: str) -> None:
    """What ops/wide.yaml says about the operator, as this machine decides it."""
    import torch_npu

    facts, said = torch_npu._C._wide_facts(name), COMPUTED[lang]
    if facts:
        print(f"\n{said['head']}:")
    for dtype, wide, when, why in facts:
        words = {"dtype": DTYPES.get(dtype, dtype), "wide": DTYPES.get(wide, wide)}
        line = said["wide" if wide != dtype else "same"].format(**words)
        line += said["when"].format(when=when) if when else ""
        print(f"  {line}" + (f" ({why}; NPU_HALF_PRODUCTS)" if why else ""))


def explain_operator(name: str, lang: str, faults: dict) -> int:
    import torch_npu

    if explain_custom(name, lang, faults):
        return 0
    bare = name.removeprefix("aten::")
    rows = torch_npu._C._explain_operator(f"aten::{bare}")
    if not rows:
        import torch

        known = sorted({n.split(".")[0] for n in torch._C._dispatch_get_all_op_names()})
        near = difflib.get_close_matches(f"aten::{bare.split('.')[0]}", known, n=3)
        print(
            f"no operator {name} in this PyTorch"
            + (f"; near it: {', '.join(near)}" if near else ""),
            file=sys.stderr,
        )
        return 2
    falling = [row for row in rows if row["falls_back"]]
    profile, driver = rows[0]["profile"], torch_npu._C._driver_info().get("name", "host")
    case, words = ("falls" if falling else "native"), {"profile": profile}
    if profile == "none" and driver != "host" and falling:
        # No chip is imitated: what this driver lacks falls back, and nothing else.
        rungs = driver_rungs()
        falling = [row for row in falling if rungs.get(row["overload"], LAST) > LAST_OF_DRIVER]
        case = f"driver_falls_{rungs['lowest']}" if falling else "driver_native"
        words = {"driver": driver}
    names = ", ".join(sorted({row["resolved"] for row in falling or rows}))
    texts = faults["operator"][case][lang]
    parts = {key: text.format(names=names, **words) for key, text in texts.items()}
    show(f"{name}: {', '.join(row['overload'] for row in rows)}", parts, lang)
    show_dtypes(f"aten::{bare.partition('.')[0]}", lang)
    return 0


def run(options: argparse.Namespace) -> int:
    lang = language(options.lang)
    faults = json.loads(FAULTS.read_text(encoding="utf-8"))
    subject = options.subject.strip()
    if re.fullmatch(r"(?i)err\d{5}", subject):
        return explain_code(subject.upper(), lang, faults)
    if re.fullmatch(r"\w+(::\w+)?(\.\w+)?", subject):
        return explain_operator(subject, lang, faults)
    print(
        f"{subject!r} is neither an error code (ERR01007) nor an operator (aten::fmax)",
        file=sys.stderr,
    )
    return 2
