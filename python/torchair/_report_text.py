# SPDX-License-Identifier: Apache-2.0
"""A report as JSON, CSV, Markdown and one HTML file, in English and Chinese."""

import csv
import html
import io
import json

_WORDS = {
    "en": {
        "title": "Graph report", "coverage": "Coverage", "calls": "calls", "time": "time",
        "graphs": "graphs", "profile": "profile", "next": "Fix next", "operator": "operator",
        "seconds": "seconds", "fix": "fix", "breaks": "Graph breaks", "reason": "reason",
        "location": "location", "all": "All calls", "status": "status", "module": "module",
        "phase": "phase", "none": "Nothing is outside of the graphs.",
    },
    "zh": {
        "title": "图模式报告", "coverage": "覆盖率", "calls": "调用次数", "time": "时间",
        "graphs": "图", "profile": "配置", "next": "优先处理", "operator": "算子",
        "seconds": "秒", "fix": "办法", "breaks": "断图", "reason": "原因",
        "location": "位置", "all": "全部调用", "status": "状态", "module": "模块",
        "phase": "阶段", "none": "没有图外的算子。",
    },
}  # fmt: skip
_COLUMNS = (
    "target", "status", "reason", "graph", "phase", "module", "location", "inputs", "outputs",
    "seconds",
)  # fmt: skip


def _words(language: str) -> dict[str, str]:
    if language not in _WORDS:
        raise ValueError(f"report: language is one of {list(_WORDS)}, but got {language!r}")
    return _WORDS[language]


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


_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;color:#222}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:2px 8px;text-align:left;vertical-align:top}"
    "th{background:#f3f3f3}"
)


def as_html(report, language: str = "en") -> str:
    """One file that loads nothing and runs nothing."""
    w = _words(language)
    cell = lambda tag, text: f"<{tag}>{html.escape(str(text))}</{tag}>"  # noqa: E731
    parts = [cell("h1", w["title"]), "<ul>"]
    parts += [cell("li", line) for line in _head(report, language)] + ["</ul>"]
    if not report.unsupported():
        parts.append(cell("p", w["none"]))
    for heading, columns, rows in _tables(report, language):
        if rows:
            parts += [cell("h2", heading), "<table><tr>", *(cell("th", c) for c in columns)]
            parts += ["</tr>"]
            parts += ["<tr>" + "".join(cell("td", c) for c in row) + "</tr>" for row in rows]
            parts += ["</table>"]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{w['title']}</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )
