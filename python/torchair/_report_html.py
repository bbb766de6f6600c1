# SPDX-License-Identifier: Apache-2.0
"""A report as one HTML file that loads nothing and runs nothing: the conclusion first, then the tables."""

import base64
import hashlib
import html

from torchair._report_text import checked_language, short

_WORDS = {
    "en": {
        "title": "Graph report", "calls": "calls", "graphs": "graphs", "profile": "profile",
        "by_calls": "of the calls in graphs", "by_time": "of the time in graphs",
        "outside": "calls outside of graphs", "breaks": "graph breaks",
        "all_in": "Everything goes into graphs",
        "all_in_why": "{calls} calls in {graphs} graphs, none outside, no graph break.",
        "no_graph": "No graph was compiled",
        "no_graph_why": "Compile with torchair.get_npu_backend() or backend=\"npu\", and run the model once.",
        "fix_first": "Fix first: {0}", "breaks_first": "The graph breaks: {0} times",
        "what": "What", "where": "Where", "todo": "What to do", "first_break": "First break",
        "stake": "{calls} of {all} calls are outside of graphs; {op} makes {mine} of them{time}.",
        "stake_time": ", {share} of the measured time",
        "todo_break": "Move the code that cannot be compiled out of the function, or see the reason below.",
        "next": "Fix next", "operator": "operator", "seconds": "seconds", "fix": "fix",
        "break_list": "Graph breaks", "reason": "reason", "location": "location",
        "all": "All calls", "status": "status", "module": "module", "phase": "phase",
        "dtypes": "Dtypes that the chip refuses, or that are unknown", "dtype": "dtype",
        "unknown": "not known",
        "supported": "supported", "partially supported": "partially supported",
    },
    "zh": {
        "title": "图模式报告", "calls": "次调用", "graphs": "个图", "profile": "配置",
        "by_calls": "的调用在图内", "by_time": "的时间在图内",
        "outside": "次调用在图外", "breaks": "处断图",
        "all_in": "全部进入图内",
        "all_in_why": "{graphs} 个图，{calls} 次调用，没有图外的调用，没有断图。",
        "no_graph": "没有编译任何图",
        "no_graph_why": "用 torchair.get_npu_backend() 或 backend=\"npu\" 编译，并运行一次模型。",
        "fix_first": "优先处理：{0}", "breaks_first": "断图：{0} 处",
        "what": "问题", "where": "位置", "todo": "怎么办", "first_break": "第一处断图",
        "stake": "{all} 次调用中有 {calls} 次在图外，其中 {mine} 次是 {op}{time}。",
        "stake_time": "，占测得时间的 {share}",
        "todo_break": "把不能编译的部分移到函数之外，或查看下面的原因。",
        "next": "优先处理", "operator": "算子", "seconds": "秒", "fix": "办法",
        "break_list": "断图", "reason": "原因", "location": "位置",
        "all": "全部调用", "status": "状态", "module": "模块", "phase": "阶段",
        "dtypes": "芯片拒绝的或未知的 dtype", "dtype": "dtype",
        "unknown": "未知",
        "supported": "支持", "partially supported": "部分支持",
    },
}  # fmt: skip

# As op-tools' report looks.
_STYLE = """
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--text:#1b1f27;--soft:#5b6473;--line:#dfe3ea;
--accent:#2563c9;--pass:#3f8f63;--warn:#b7791f;--error:#c8322b}
@media (prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f27;--text:#e4e8ef;--soft:#98a2b3;
--line:#2c333f;--accent:#7fb0f5;--pass:#5fbf8a;--warn:#e0ac4f;--error:#f0716a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:14px/1.45 system-ui,"Segoe UI",Roboto,
"Helvetica Neue","DejaVu Sans","PingFang SC","Microsoft YaHei","Noto Sans CJK SC",Arial,sans-serif}
header,main{max-width:1500px;margin:0 auto;padding:0 20px}
header{padding-top:18px}
h1{font-size:20px;margin:0}
h2{font-size:15px;margin:0 0 8px}
p{margin:2px 0}
.soft{color:var(--soft)}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:16px 0}
.conclusion{border-left:5px solid var(--line)}
.conclusion h2{font-size:18px;overflow-wrap:anywhere}
.conclusion.error{border-left-color:var(--error)}
.conclusion.warn{border-left-color:var(--warn)}
.conclusion.pass{border-left-color:var(--pass)}
.error h2,b.error,td.error{color:var(--error)}
.warn h2,td.warn{color:var(--warn)}
.pass h2,b.pass,td.pass{color:var(--pass)}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 14px;margin:0 0 8px}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
code{font-family:ui-monospace,"SF Mono",Consolas,"DejaVu Sans Mono",monospace;font-size:12.5px;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px}
.fact{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px;color:inherit;text-decoration:none}
.fact b{display:block;font-size:20px;font-weight:600}
.fact span{color:var(--soft);font-size:12.5px}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:4px 9px;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th{color:var(--soft);font-size:12.5px}
td.n,th.n{text-align:right;white-space:nowrap;overflow-wrap:normal;font-variant-numeric:tabular-nums}
td.op{min-width:150px}
td.all,th.all{white-space:nowrap}
@media (max-width:700px){
header,main{padding:0 10px}.card{padding:12px 10px}
dl{grid-template-columns:minmax(0,1fr);gap:0}dd{margin-bottom:6px}
.tiles{grid-template-columns:repeat(auto-fit,minmax(104px,1fr));gap:8px}
thead{display:none}tr{display:block;border-bottom:1px solid var(--line);padding:6px 0}
td,td.n{display:grid;grid-template-columns:84px minmax(0,1fr);border:0;padding:1px 4px;text-align:left;white-space:normal}
td::before{content:attr(data-name);color:var(--soft);font-weight:400}
td:empty{display:none}}
"""
_STATUS = {"supported": "pass", "partially supported": "warn"}


def _tag(name: str, text: object, kind: str = "", **attributes: str) -> str:
    given = {"class": kind, **attributes}
    written = "".join(
        f' {key.replace("_", "-")}="{html.escape(value)}"' for key, value in given.items() if value
    )
    return f"<{name}{written}>{html.escape(str(text))}</{name}>"


def _conclusion(report, w: dict[str, str]) -> str:
    if not report.calls:
        return _box("warn", w["no_graph"], [], w["no_graph_why"])
    outside = report.unsupported()
    if not outside and not report.breaks:
        why = w["all_in_why"].format(calls=len(report.calls), graphs=report.graphs)
        return _box("pass", w["all_in"], [], why)
    facts = []
    if outside:
        name, mine, seconds = report.fix_next()[0]
        first = next(call for call in outside if call.target == name)
        whole = sum(call.seconds for call in report.calls)
        time = w["stake_time"].format(share=f"{seconds / whole:.0%}") if whole and seconds else ""
        stake = w["stake"].format(
            calls=len(outside), all=len(report.calls), op=name, mine=mine, time=time
        )
        facts.append((w["what"], _tag("p", first.reason) + _tag("p", stake)))
        facts.append((w["where"], _where(first, w)))
        facts.append((w["todo"], _tag("code", report.fixes.get(name, "")) or w["unknown"]))
        title = w["fix_first"].format(name)
    else:
        title = w["breaks_first"].format(len(report.breaks))
    if report.breaks:
        first = report.breaks[0]
        facts.append((w["first_break"], _tag("p", first.reason) + _tag("code", first.location)))
        if not outside:
            facts.append((w["todo"], html.escape(w["todo_break"])))
    return _box("error" if outside else "warn", title, facts)


def _box(kind: str, title: str, facts: list[tuple[str, str]], text: str = "") -> str:
    rows = "".join(f"{_tag('dt', name)}<dd>{content}</dd>" for name, content in facts)
    inside = (
        _tag("h2", title) + (f"<dl>{rows}</dl>" if rows else "") + (_tag("p", text) if text else "")
    )
    return f'<section class="card conclusion {kind}">{inside}</section>'


def _where(call, w: dict[str, str]) -> str:
    parts = [_tag("code", call.location)] if call.location else [html.escape(w["unknown"])]
    parts += [html.escape(part) for part in (call.module, call.phase) if part]
    return " · ".join(parts)


def _tiles(report, w: dict[str, str]) -> str:
    outside = len(report.unsupported())
    facts = [
        (f"{report.coverage():.1%}", w["by_calls"], "#outside" if outside else "#all", outside),
        (f"{report.coverage('time'):.1%}", w["by_time"], "#outside" if outside else "#all", 0),
        (report.graphs, w["graphs"], "#all", 0),
        (len(report.calls), w["calls"], "#all", 0),
        (outside, w["outside"], "#outside" if outside else "#all", outside),
        (len(report.breaks), w["breaks"], "#breaks" if report.breaks else "#all", 0),
    ]
    made = [
        f'<a class="fact" href="{to}">{_tag("b", value, "error" if bad else "")}{_tag("span", label)}</a>'
        for value, label, to, bad in facts
    ]
    return f'<section class="tiles">{"".join(made)}</section>'


def _table(number: str, heading: str, columns: list[tuple[str, str]], rows: list[tuple]) -> str:
    """`columns` are names with the class of their cells; a cell may bring one of its own."""
    head = "".join(_tag("th", name, kind) for name, kind in columns)
    body = []
    for row in rows:
        cells = []
        for (name, kind), value in zip(columns, row):
            text, own = value if isinstance(value, tuple) else (value, "")
            cells.append(_tag("td", text, f"{kind} {own}".strip(), data_name=name))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<section class="card" id="{number}">{_tag("h2", heading)}<table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></section>"
    )


def _tables(report, w: dict[str, str]) -> list[str]:
    made = []
    fixes = [
        (name, calls, f"{seconds:.6f}", report.fixes.get(name, ""))
        for name, calls, seconds in report.fix_next()
    ]
    if fixes:
        columns = [(w["operator"], "op"), (w["calls"], "n"), (w["seconds"], "n"), (w["fix"], "")]
        made.append(_table("outside", w["next"], columns, fixes))
    if report.breaks:
        rows = [(b.reason, b.location) for b in report.breaks]
        made.append(
            _table("breaks", w["break_list"], [(w["reason"], ""), (w["location"], "")], rows)
        )
    gaps = report.dtype_gaps()
    if gaps:
        columns = [(w["operator"], "op"), (w["dtype"], ""), (w["calls"], "n"), (w["location"], "")]
        rows = [(name, dtypes, calls, short(place)) for name, dtypes, calls, place in gaps]
        made.append(_table("dtypes", w["dtypes"], columns, rows))
    calls = [
        (
            c.target, (w.get(c.status, c.status), _STATUS.get(c.status, "error")), c.reason, c.phase,
            c.module, short(c.location),
        )
        for c in report.calls
    ]  # fmt: skip
    if calls:
        columns = [
            (w["operator"], "op"), (w["status"], ""), (w["reason"], ""), (w["phase"], "all"),
            (w["module"], ""), (w["location"], ""),
        ]  # fmt: skip
        made.append(_table("all", w["all"], columns, calls))
    return made


def as_html(report, language: str = "en") -> str:
    w = _WORDS[checked_language(language)]
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    about = f"{w['profile']}: {report.profile}"
    parts = [
        f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"{_tag('title', w['title'])}<style>{_STYLE}</style></head><body>",
        f"<header>{_tag('h1', w['title'])}{_tag('p', about, 'soft')}</header><main>",
        _conclusion(report, w),
        _tiles(report, w) if report.calls else "",
        *_tables(report, w),
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"
