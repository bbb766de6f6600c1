# SPDX-License-Identifier: Apache-2.0
"""The measured table of docs/performance.md and its Chinese version, made from results.json and the bars."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bars import BARS, Bar

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "performance.md", DOCS / "zh-CN" / "performance.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
UNITS = {bar.name: bar.unit for bar in BARS}


def show(name: str, result: dict) -> str:
    unit = result.get("unit", UNITS.get(name, "x"))
    text = f"{result['median']:.3g} {unit} [{result['low']:.3g}, {result['high']:.3g}]"
    return text.replace(" x [", "x [")


def lines(bars: list[Bar], watched: dict[str, str], recorded: dict) -> list[str]:
    results, where = recorded["results"], recorded["machine"]
    rows = [
        f"Measured on {where['cpu']}, {where['threads']} threads, torch {where['torch']}.",
        "",
        "| what | against | bar | measured, median [95 %] | A/A | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for bar in bars:
        result = results.get(bar.name)
        if result is None:
            rows.append(
                f"| {bar.what} | {bar.against} | {bar.limit:g} {bar.unit} | - | - | not measured |"
            )
            continue
        met = result["low"] <= bar.limit
        verdict = "met" if met else f"missed: {bar.reason or 'no reason given'}"
        # How a value was measured that is not from the machine and clock of the others.
        verdict += f" ({result['how']})" if "how" in result else ""
        quiet = f"{result['aa']:.3f}" if "aa" in result else "-"
        rows.append(
            f"| {bar.what} | {bar.against} | {bar.limit:g} {bar.unit} | "
            f"{show(bar.name, result)} | {quiet} | {verdict} |"
        )
    for name, what in watched.items():
        if name in results:
            quiet = f"{results[name]['aa']:.3f}" if "aa" in results[name] else "-"
            rows.append(f"| {what} | | - | {show(name, results[name])} | {quiet} | watched |")
    return rows


def rendered(page: Path, bars: list[Bar], watched: dict[str, str], recorded: dict) -> str:
    """The whole page with its measured part made anew."""
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return head + "\n".join([BEGIN, *lines(bars, watched, recorded), END]) + tail


def write(bars: list[Bar], watched: dict[str, str], recorded: dict) -> None:
    for page in PAGES:
        page.write_text(rendered(page, bars, watched, recorded), encoding="utf-8")
