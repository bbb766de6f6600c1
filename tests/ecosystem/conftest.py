# SPDX-License-Identifier: Apache-2.0
"""Libraries as their users run them. A test says with @pytest.mark.library(name, what) what it is about;
OPENNPU_ECOSYSTEM_TABLE=FILE writes what was run, with which version and result, as a Markdown table."""

from __future__ import annotations

import os
from importlib import metadata

import pytest

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
_rows: dict[tuple[str, str], list[str]] = {}


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if item.get_closest_marker("full") and not FULL:
            item.add_marker(pytest.mark.skip(reason="OPENNPU_TEST_FULL=1 runs it"))


def pytest_runtest_setup(item) -> None:
    marker = item.get_closest_marker("library")
    if marker is not None:
        item.user_properties.append(("library", marker.args))


def pytest_runtest_logreport(report) -> None:
    if report.when != "call" and report.passed:
        return
    for key, value in report.user_properties:
        if key == "library":
            _rows.setdefault(tuple(value), []).append(report.outcome)


def pytest_sessionfinish(session) -> None:
    file = os.environ.get("OPENNPU_ECOSYSTEM_TABLE")
    if not file or hasattr(session.config, "workerinput"):
        return
    lines = ["| library | version | what was run | result |", "|---|---|---|---|"]
    for (library, what), outcomes in sorted(_rows.items()):
        lines.append(f"| {library} | {_version(library)} | {what} | {_result(outcomes)} |")
    with open(file, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"


def _result(outcomes: list[str]) -> str:
    counts = {kind: outcomes.count(kind) for kind in ("passed", "failed", "skipped")}
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
