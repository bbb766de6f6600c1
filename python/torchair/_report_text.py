# SPDX-License-Identifier: Apache-2.0
"""A report as JSON, CSV and Markdown, in English and Chinese."""

import csv
import io
import json

_WORDS = {
    "en": {
        "title": "Graph report", "coverage": "Coverage", "calls": "calls", "time": "time",
        "graphs": "graphs", "profile": "profile", "next": "Fix next", "operator": "operator",
        "seconds": "seconds", "fix": "fix", "breaks": "Graph breaks", "reason": "reason",
        "location": "location", "all": "All calls", "status": "status", "module": "module",
        "phase": "phase", "none": "Nothing is outside of the graphs.",
        "dtypes": "Dtypes that the chip refuses, or that are unknown", "dtype": "dtype",
    },
    "zh": {
        "title": "图模式报告", "coverage": "覆盖率", "calls": "调用次数", "time": "时间",
        "graphs": "图", "profile": "配置", "next": "优先处理", "operator": "算子",
        "seconds": "秒", "fix": "办法", "breaks": "断图", "reason": "原因",
        "location": "位置", "all": "全部调用", "status": "状态", "module": "模块",
        "phase": "阶段", "none": "没有图外的算子。",
        "dtypes": "芯片拒绝的或未知的 dtype", "dtype": "dtype",
    },
}  # fmt: skip
_COLUMNS = (
    "target", "status", "reason", "graph", "phase", "module", "location", "inputs", "outputs",
    "seconds", "dtypes",
)  # fmt: skip


def checked_language(language: str) -> str:
    if language not in _WORDS:
        raise ValueError(f"report: language is one of {list(_WORDS)}, but got {language!r}")
    return language


def _words(language: str) -> dict[str, str]:
    return _WORDS[checked_language(language)]


def short(location: str) -> str:
    """`train.py:12 in forward` of `/home/me/train.py:12 in forward`: the folder says least."""
    return location.rpartition("/")[2]


def as_json(report) -> str:
    return json.dumps(report.as_dict(), ensure_ascii=False, indent=2) + "\n"


def as_csv(report) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(call, c) for c in _COLUMNS] for call in report.calls)
    return out.getvalue()


def _tables(report, language: str):
    """(heading, columns, rows) of what people read."""
    w = _words(language)
    fixes = [
        (name, calls, f"{seconds:.6f}", report.fixes.get(name, ""))
        for name, calls, seconds in report.fix_next()
    ]
    yield w["next"], (w["operator"], w["calls"], w["seconds"], w["fix"]), fixes
    columns = (w["operator"], w["dtype"], w["calls"], w["location"])
    yield w["dtypes"], columns, report.dtype_gaps()
    breaks = [(b.reason, b.location) for b in report.breaks]
    yield w["breaks"], (w["reason"], w["location"]), breaks
    calls = [(c.target, c.status, c.reason, c.phase, c.module, c.location) for c in report.calls]
    columns = (w["operator"], w["status"], w["reason"], w["phase"], w["module"], w["location"])
    yield w["all"], columns, calls


def _head(report, language: str) -> list[str]:
    w = _words(language)
    by = [f"{w[key]} {report.coverage(key):.1%}" for key in ("calls", "time")]
    return [
        f"{w['profile']}: {report.profile}",
        f"{w['graphs']}: {report.graphs}",
        f"{w['coverage']}: {', '.join(by)}",
    ]


def as_markdown(report, language: str = "en") -> str:
    w = _words(language)
    lines = [f"# {w['title']}", "", *(f"- {line}" for line in _head(report, language))]
    if not report.unsupported():
        lines += ["", w["none"]]
    for heading, columns, rows in _tables(report, language):
        if rows:
            lines += ["", f"## {heading}", "", _row(columns), _row(["---"] * len(columns))]
            lines += [_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _row(cells) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
