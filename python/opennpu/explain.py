# SPDX-License-Identifier: Apache-2.0
"""`opennpu explain ERR01007` and `opennpu explain aten::linalg_lstsq`, in Chinese or English."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from pathlib import Path

from opennpu import runtime_codes, words

FAULTS = Path(__file__).with_name("faults.json")
LAST_OF_DRIVER = 3  # rungs beyond it are PyTorch's CPU kernels
LAST = 5
HEADINGS = {
    "en": {"seen": "What is seen", "cause": "Cause", "effect": "Effect", "do": "What to do"},
    "zh": {"seen": "现象", "cause": "原因", "effect": "影响", "do": "处理方法"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", help="an error code (ERR01007, 507018) or an operator (aten::fmax)"
    )
    # If not given here, the option before the command counts.
    parser.add_argument(
        "--lang", choices=words.LANGUAGES, default=argparse.SUPPRESS,
        help="default: that of LC_ALL, LC_MESSAGES or LANG",
    )  # fmt: skip


def show(title: str, parts: dict[str, str], lang: str) -> None:
    print(title)
    for key, heading in HEADINGS[lang].items():
        print(f"\n{heading}:")
        print("  " + parts[key].replace("\n", "\n  "))


# One line each. A code of the toolkit is explained by the log line that it stands in.
UNKNOWN = {
    "en": {
        "code": "no error code {code}: it is ERR, a module ({modules}) and a kind ({kinds})",
        "runtime": "{code} is no code of Ascend's runtime that is known here{near}. Codes of 1xxxxx are about "
        "arguments, 2xxxxx about resources, 5xxxxx about the device. Look at the device's log (plog).",
        "near": "; near it: {codes}",
        "toolkit": "{code} is a code of Ascend's toolkit (CANN), which OpenNPU does not give. The text behind it "
        "in the log says what is wrong. Run the program here: most wrong arguments raise an error with the "
        "Python line.",
        "subject": "{subject!r} is neither an error code (ERR01007, 507018) nor an operator (aten::fmax)",
    },
    "zh": {
        "code": "没有错误码 {code}：它由 ERR、模块（{modules}）和种类（{kinds}）组成",
        "runtime": "{code} 不是这里已知的 Ascend 运行时错误码{near}。1xxxxx 与参数有关，2xxxxx 与资源有关，"
        "5xxxxx 与设备有关。请查看设备日志（plog）。",
        "near": "；相近的有：{codes}",
        "toolkit": "{code} 是 Ascend 工具包（CANN）的错误码，OpenNPU 不会给出。日志中它后面的文字说明了原因。"
        "请在这里运行程序：多数错误参数会报错，并给出 Python 行号。",
        "subject": "{subject!r} 既不是错误码（ERR01007、507018），也不是算子（aten::fmax）",
    },
}  # fmt: skip


def refuse(key: str, lang: str, **words: object) -> int:
    print(UNKNOWN[lang][key].format(**words), file=sys.stderr)
    return 2


def explain_code(code: str, lang: str, faults: dict) -> int:
    module, kind = code[3:5], code[5:]
    if module not in faults["modules"] or kind not in faults["kinds"]:
        modules, kinds = ", ".join(faults["modules"]), ", ".join(faults["kinds"])
        return refuse("code", lang, code=code, modules=modules, kinds=kinds)
    special = faults["codes"].get(code, {})
    parts = {**faults["kinds"][kind][lang], **special.get(lang, {})}
    where = faults["modules"][module]
    show(f"{code} {where['name']} {faults['kinds'][kind]['text']} ({where[lang]})", parts, lang)
    return 0


def explain_runtime_code(code: int, lang: str) -> int:
    found = runtime_codes.find(code)
    if found is None:
        codes = ", ".join(runtime_codes.near(code))
        near = UNKNOWN[lang]["near"].format(codes=codes) if codes else ""
        return refuse("runtime", lang, code=code, near=near)
    name, parts = found
    show(f"{code} {name}", parts[lang], lang)
    return 0


def driver_rungs() -> dict[str, int]:
    """The rung of every overload that can reach a driver, and the lowest one that this driver needs."""
    from opennpu import ops

    found = ops.collect(argparse.Namespace(pattern=None, profile=None))
    return {row["overload"]: row["rung"] for row in found["operators"]} | {
        "lowest": found["cpu_rung"]
    }


DIFFERENCE = {
    "en": " Where Ascend's documents are unclear, or a use is refused: {note}",
    "zh": "与昇腾文档的差异，或不支持的用法（英文）：{note}",
}


def difference(space: str, name: str, lang: str) -> str:
    """The operator's note in ops/npu as a sentence, or an empty text."""
    from opennpu import ops

    note = next(
        row["note"]
        for row in ops.custom_operators()
        if (row["namespace"], row["name"]) == (space, name)
    )
    return DIFFERENCE[lang].format(note=note) if note else ""


def explain_custom(name: str, lang: str, faults: dict) -> bool:
    """Prints what an operator of Ascend computes and whether it is implemented; False if unknown."""
    import torch_npu

    namespace, _, bare = name.rpartition("::")
    for space in (namespace,) if namespace else ("npu", "atb"):
        row = torch_npu._C._find_custom(space, bare.partition(".")[0])
        if row is not None:
            row = dict(zip(("module", "doc", "nearest", "refused"), row, strict=True))
            state = "_refused" if row["refused"] else "" if row["module"] else "_missing"
            texts = faults["operator"][f"custom{state}"][lang]
            row["instead"] = f"torch_npu.{row['nearest']}" if row["nearest"] else "torch"
            row["difference"] = difference(space, bare.partition(".")[0], lang)
            parts = {k: t.format(**row) for k, t in texts.items()}
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


TAKEN = {
    "en": {
        "head": "Dtypes on {profile}", "native": "takes", "refused": "refuses",
        "unknown": "unknown",
        "none_known": "the tables behind the profile say nothing about this operator",
        "what": "A refused dtype raises an error there; no CPU takes its place.",
    },
    "zh": {
        "head": "{profile} 上的 dtype", "native": "支持", "refused": "拒绝",
        "unknown": "未知",
        "none_known": "profile 所依据的表格没有提到这个算子",
        "what": "被拒绝的 dtype 在芯片上会报错，不会改由 CPU 计算。",
    },
}  # fmt: skip
PLAIN = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
).split()


def show_taken(rows: list[dict], lang: str) -> None:
    """What the profile says about dtypes; overloads that are alike are shown once."""
    import torch_npu

    said, shown = TAKEN[lang], {}
    for row in rows:
        known = torch_npu._C._dtypes_of(row["overload"])
        if known is not None:
            native, refused = known["native"], known["refused"]
            unknown = [d for d in PLAIN if d not in native and d not in refused]
            key = tuple(native), tuple(d for d in refused if d in PLAIN), tuple(unknown)
            shown.setdefault(key, []).append(row["overload"])
    if not shown:
        return
    print(f"\n{said['head'].format(profile=rows[0]['profile'])}:")
    for (native, refused, unknown), overloads in shown.items():
        if len(shown) > 1:
            print(f"  {', '.join(overloads)}")
        if not native and not refused:
            print(f"  {said['none_known']}")
            continue
        for word, dtypes in (("native", native), ("refused", refused), ("unknown", unknown)):
            if dtypes:
                print(f"  {said[word]}: {', '.join(dtypes)}")
    if any(refused for _, refused, _ in shown):
        print(f"  {said['what']}")


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
        # No chip is imitated: only operators that this driver lacks fall back.
        rungs = driver_rungs()
        falling = [row for row in falling if rungs.get(row["overload"], LAST) > LAST_OF_DRIVER]
        case = f"driver_falls_{rungs['lowest']}" if falling else "driver_native"
        words = {"driver": driver}
    names = ", ".join(sorted({row["resolved"] for row in falling or rows}))
    texts = faults["operator"][case][lang]
    parts = {key: text.format(names=names, **words) for key, text in texts.items()}
    show(f"{name}: {', '.join(row['overload'] for row in rows)}", parts, lang)
    show_taken(rows, lang)
    show_dtypes(f"aten::{bare.partition('.')[0]}", lang)
    return 0


def run(options: argparse.Namespace) -> int:
    lang = words.language()
    faults = json.loads(FAULTS.read_text(encoding="utf-8"))
    subject = options.subject.strip()
    if re.fullmatch(r"(?i)err\d+", subject):
        return explain_code(subject.upper(), lang, faults)
    if re.fullmatch(r"\d+", subject):
        return explain_runtime_code(int(subject), lang)
    if re.fullmatch(r"E[A-Z0-9]\d{4}", subject):
        return refuse("toolkit", lang, code=subject)
    if re.fullmatch(r"\w+(::\w+)?(\.\w+)?", subject):
        return explain_operator(subject, lang, faults)
    return refuse("subject", lang, subject=subject)
