# SPDX-License-Identifier: Apache-2.0
"""What OpAutoCompare and OpTimeMeasure found, in files beside a capture, for `op-tools report`.

    tool.save_results(folder)        # compare.json, or time.json

JSON: {"format", "version", "columns": [...], "rows": [[...], ...]}; numbers JSON has no word for
are the texts "inf", "-inf" and "nan".
"""

from __future__ import annotations

import json
import math

from op_tools.core.files import write_whole
from op_tools.core.printing import many

FORMAT, VERSION = "op_tools results", 1
COMPARE, TIME, THREADS = "compare.json", "time.json", "threads.json"
# Columns whose fields others count with or look up by; None may stand for any of them.
_TEXTS = frozenset("op phase api module site result dtype verdict reason name".split())
_WHOLE = frozenset("number step thread forward api_call".split())
_NUMBERS = frozenset("e over start_ns took_ns device_ns elements".split())


class ResultsError(ValueError):
    """A file of results cannot be read; the text says what is wrong and where."""


def plain(value: object) -> object:
    """A value that JSON has a word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, complex):
        return f"{value:.9g}"
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def number(value: object) -> float | None:
    """The number a field stands for; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return float(value) if value in ("inf", "-inf", "nan") else None
    try:
        return float(value)
    except OverflowError:  # JSON's whole numbers have no end
        return None


def save(path: str, what: str, columns: list[str], rows: list[dict], **more: object) -> str:
    """Writes rows as a file of results; returns its path."""
    held = {
        "format": FORMAT,
        "version": VERSION,
        "what": what,
        **more,
        "columns": columns,
        "rows": [[plain(row.get(name)) for name in columns] for row in rows],
    }
    write_whole(path, json.dumps(held, separators=(",", ":"), allow_nan=False))
    return path


def load(path: str, what: str) -> dict:
    """The file's map, its rows as maps; `problems` says which rows were left out, and why. Raises
    ResultsError where there is nothing to use."""
    try:
        with open(path, encoding="utf-8") as file:
            held = json.load(file)
    except (ValueError, RecursionError) as error:  # no JSON, or no text
        raise ResultsError(f"{path} is no JSON: {error}") from None
    if not isinstance(held, dict) or held.get("format") != FORMAT or held.get("what") != what:
        raise ResultsError(f"{path} holds no results of {what} of op_tools")
    if held.get("version") != VERSION:
        raise ResultsError(
            f"{path} has version {held.get('version')}; this op_tools reads version {VERSION}"
        )
    columns, rows = held.get("columns"), held.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise ResultsError(f"{path}: its columns or rows are missing")
    names = [str(column) for column in columns]
    good, bad = [], []
    for i, row in enumerate(rows):
        why = _wrong(names, row)
        if why:
            bad.append(f"row {i} {why}")
        else:
            good.append(dict(zip(names, row)))
    held["rows"] = good
    held["problems"] = [f"{path}: {bad[0]}; {many(len(bad), 'row')} not used"] if bad else []
    for name, kind in (("dropped", int), ("skips", list), ("threads", dict)):
        if not isinstance(held.get(name, kind()), kind):
            held["problems"].append(f"{path}: `{name}` is {_kind(held.pop(name))}, and not used")
    return held


def _wrong(names: list[str], row: object) -> str:
    """What is wrong with a row; empty where nothing is."""
    if not isinstance(row, list) or len(row) != len(names):
        return f"has not {len(names)} fields"
    for name, value in zip(names, row):
        if value is None:
            continue
        if name in _TEXTS and not isinstance(value, str):
            return f"has {_kind(value)} for its `{name}`, which is a text"
        if name in _WHOLE and (isinstance(value, bool) or not isinstance(value, int)):
            return f"has {_kind(value)} for its `{name}`, which is a whole number"
        if name in _NUMBERS and number(value) is None:
            return f"has {_kind(value)} for its `{name}`, which is a number"
    return ""


def _kind(value: object) -> str:
    kinds = {dict: "a map", list: "a list", str: "a text", bool: "a truth value"}
    return kinds.get(type(value), "a number")
