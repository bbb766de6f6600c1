# SPDX-License-Identifier: Apache-2.0
"""pytest --npu-no-fallback: tests fail where the chip would leave an operator to its CPU, or raise.

pytest loads this file in every environment with OpenNPU: it imports neither torch nor the plugin
until a test has done so. Child processes of a test are not seen.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import sys
from pathlib import Path

import pytest

_ROWS = pytest.StashKey[list]()
_GAPS = pytest.StashKey[list]()
_UNKNOWN = pytest.StashKey[list]()
_KEPT = (
    "overload", "reported", "rung", "reason", "calls", "refused_calls", "bytes", "seconds", "call_site",
)  # fmt: skip
_HINT = "`opennpu explain OPERATOR` says what to do; --npu-allow-fallback=OPERATOR accepts it."
_UNUSED = (
    "npu: no test used an npu device: nothing was judged. Use the fixture npu_device, or the device "
    'name "npu".'
)
_NO_PROFILE = (
    "npu: NPU_PROFILE=none: no chip was imitated. Only operators that the driver lacks were judged."
)


def pytest_addoption(parser) -> None:
    group = parser.getgroup("npu", "OpenNPU: operators that the chip would run on its CPU")
    group.addoption(
        "--npu-no-fallback", action="store_true",
        help="a test fails when it calls an operator that the chip of NPU_PROFILE lacks, "
        "or uses a feature or a dtype that the chip refuses",
    )  # fmt: skip
    group.addoption(
        "--npu-allow-fallback", action="append", default=[], metavar="OPERATOR",
        help="accept this operator (aten::fmax; * and ? stand for any); may be repeated",
    )  # fmt: skip
    group.addoption(
        "--npu-fallback-json", metavar="FILE", help="write each test's fallbacks to FILE"
    )
    parser.addini("npu_allow_fallback", "operators that may fall back, one a line", "linelist", [])


def pytest_configure(config) -> None:
    config.addinivalue_line(
        "markers", "npu_allow_fallback(*operators): operators that may fall back in this test"
    )
    config.addinivalue_line("markers", "npu_no_fallback: --npu-no-fallback for this test")
    if _is_on(config):
        config.pluginmanager.register(_Watch(config), "opennpu-fallbacks")
    else:
        config.pluginmanager.register(_Fixtures(), "opennpu-fallbacks")


def _is_on(config) -> bool:
    return bool(config.getoption("--npu-no-fallback") or config.getoption("--npu-fallback-json"))


# ---- fixtures ----------------------------------------------------------------------
@pytest.fixture
def npu_device():
    """torch.device("npu", 0); the test fails where there is none."""
    import torch
    import torch_npu  # noqa: F401

    if not torch.npu.is_available():
        pytest.fail("npu: the driver has no device; `opennpu doctor` says why", pytrace=False)
    return torch.device("npu", 0)


@pytest.fixture
def no_fallback(request):
    """This test fails when an operator falls back, without --npu-no-fallback too."""
    import torch
    import torch_npu  # noqa: F401

    request.node.add_marker("npu_no_fallback")
    if not _counts_anew(request.node):  # asked for by getfixturevalue()
        torch.npu.reset_fallback_stats()


def _counts_anew(item) -> bool:
    """Whether counting began with the setup: calls of other fixtures belong to the test."""
    return (
        _is_on(item.config)
        or "no_fallback" in getattr(item, "fixturenames", ())
        or item.get_closest_marker("npu_no_fallback") is not None
    )


# ---- one test --------------------------------------------------------------------------
def _npu():
    """torch.npu, where the program has imported it."""
    return getattr(sys.modules.get("torch"), "npu", None) if "torch_npu" in sys.modules else None


def _rows() -> list[dict]:
    npu = _npu()
    if npu is None:
        return []
    return [{key: row[key] for key in _KEPT} for row in npu.fallback_stats()]


def _gaps() -> list[dict]:
    """What works here and raises on the chip: {"feature": "float64 aten::mm"}."""
    npu = _npu()
    return [] if npu is None else npu.profile_gaps()


def _unknown() -> list[dict]:
    npu = _npu()
    return [] if npu is None else npu.unknown_dtypes()


def _name(row: dict) -> str:
    return row["reported"] or row["overload"]


def _is_judged(item) -> bool:
    on = item.config.getoption("--npu-no-fallback")
    return bool(on or item.get_closest_marker("npu_no_fallback"))


def _of_the_run(config) -> list[str]:
    """The patterns of operators that the whole run accepts."""
    return [*config.getoption("--npu-allow-fallback"), *config.getini("npu_allow_fallback")]


def _of_the_test(item) -> list[str]:
    return [name for mark in item.iter_markers("npu_allow_fallback") for name in mark.args]


def _not_allowed(rows: list[dict], allowed: list[str]) -> list[dict]:
    return [row for row in rows if not any(_matches(row, pattern) for pattern in allowed)]


# Features that are no operators; a pattern may stand for all of them.
_FEATURES = ("memory_format=channels_last", *(f"{word} aten::mm" for word in (
    "sparse", "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)))  # fmt: skip
_found: set[str] = set()  # patterns that some operator has matched


def _no_such_operator(patterns: list[str]) -> list[str]:
    """A line for each pattern that no operator of this process can match. Without torch: none."""
    torch = sys.modules.get("torch")
    new = [pattern for pattern in patterns if pattern not in _found]
    if torch is None or not new:
        return []
    names = set(torch._C._dispatch_get_all_op_names())
    names |= {name.partition(".")[0] for name in names}
    said = []
    for pattern in new:
        operator = pattern.rpartition(" ")[2]
        operator = operator if "::" in operator else f"aten::{operator}"
        features = any(fnmatch.fnmatchcase(feature, pattern) for feature in _FEATURES)
        if features or any(fnmatch.fnmatchcase(name, operator) for name in names):
            _found.add(pattern)
            continue
        near = difflib.get_close_matches(operator.partition(".")[0], names, n=3)
        said.append(
            f"npu_allow_fallback: there is no operator {pattern!r}"
            + (f"; near it: {', '.join(near)}" if near else "")
        )
    return said


def pytest_collection_finish(session) -> None:
    """A misspelt name would accept nothing, and would never be noticed. Operators of the project's own
    are known once its tests are imported; a worker of pytest-xdist leaves the error to each test."""
    if hasattr(session.config, "workerinput"):
        return
    if said := _no_such_operator(_of_the_run(session.config)):
        raise pytest.UsageError("\n".join(said))


def _matches(row: dict, pattern: str) -> bool:
    """aten::fmax stands for all of its overloads, aten::mm also for "float64 aten::mm"."""
    if "feature" in row:
        names = {row["feature"], row["feature"].rpartition(" ")[2]}
        patterns = {pattern, f"aten::{pattern}"}
    else:
        names = {name for key in ("overload", "reported") if (name := row[key])}
        patterns = {pattern if "::" in pattern else f"aten::{pattern}"}
    names |= {name.partition(".")[0] for name in names}
    return any(fnmatch.fnmatchcase(name, one) for name in names for one in patterns)


def _times(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls} calls"


def _line(row: dict) -> str:
    calls = _times(row["calls"] or row.get("refused_calls", 0))
    return (
        f"{_name(row)}: {calls}, {row['reason']}, first at {row['call_site'] or 'an unknown line'}"
    )


def _gap_line(gap: dict) -> str:
    place = gap["call_site"] or "an unknown line"
    return f"{gap['feature']}: {_times(gap['calls'])}, first at {place}"


class _Fixtures:
    """Judges tests with the fixture no_fallback or the marker; counts are the program's own."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        if _counts_anew(item) and _npu() is not None:
            _npu().reset_fallback_stats()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        result = yield
        if item.get_closest_marker("npu_no_fallback"):
            _fail(item, _rows(), _gaps())
        return result


def _fail(item, rows: list[dict], gaps: list[dict]) -> None:
    if not _is_judged(item):
        return
    allowed = _of_the_run(item.config) + _of_the_test(item)
    if wrong := _no_such_operator(allowed):
        pytest.fail("\n".join(wrong), pytrace=False)
    said = []
    if rows := _not_allowed(rows, allowed):
        said += ["npu: operators fell back to the CPU:", *(f"  {_line(row)}" for row in rows)]
    if gaps := _not_allowed(gaps, allowed):
        said += [f"npu: works here, raises an error on {_profile()}:"]
        said += [f"  {_gap_line(gap)}" for gap in gaps]
    if said:
        pytest.fail("\n".join([*said, _HINT]), pytrace=False)


# ---- the whole run -----------------------------------------------------------------------
class _Watch:
    """Counts anew for each test, from its setup to the end of its call."""

    def __init__(self, config) -> None:
        self.config = config
        self.is_worker = hasattr(config, "workerinput")  # of pytest-xdist
        self.tests: dict[str, list[dict]] = {}
        self.gaps: dict[str, list[dict]] = {}
        self.unknown: dict[tuple[str, str], int] = {}
        self.judged = self.used = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        if _npu() is not None:
            _npu().reset_fallback_stats()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        try:
            result = yield
        finally:  # a test that fails may have fallen back as well
            rows = item.stash[_ROWS] = _rows()
            gaps = item.stash[_GAPS] = _gaps()
            item.stash[_UNKNOWN] = _unknown()
            # JUnit's properties.
            item.user_properties += [("npu_fallback", _line(row)) for row in rows]
            item.user_properties += [("npu_refused", _gap_line(gap)) for gap in gaps]
        _fail(item, rows, gaps)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.when == "call":  # what pytest-xdist sends is the report
            npu = _npu()
            report.npu_fallbacks = item.stash.get(_ROWS, [])
            report.npu_gaps = item.stash.get(_GAPS, [])
            report.npu_unknown = item.stash.get(_UNKNOWN, [])
            report.npu_used = npu is not None and npu.is_initialized()
        return report

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == "call":
            self.judged += 1
            self.used += bool(getattr(report, "npu_used", False))
            if getattr(report, "npu_fallbacks", []):
                self.tests[report.nodeid] = report.npu_fallbacks
            if getattr(report, "npu_gaps", []):
                self.gaps[report.nodeid] = report.npu_gaps
            for row in getattr(report, "npu_unknown", []):
                key = row["operator"], row["dtype"]
                self.unknown[key] = self.unknown.get(key, 0) + row["calls"]

    def operators(self) -> list[dict]:
        """Over all tests, most calls first."""
        found: dict[str, dict] = {}
        for test, rows in self.tests.items():
            for row in rows:
                sums = found.setdefault(
                    _name(row), {"operator": _name(row), "calls": 0, "bytes": 0, "seconds": 0.0,
                                 "tests": 0, "reason": row["reason"], "first_test": test,
                                 "call_site": row["call_site"]},
                )  # fmt: skip
                sums["tests"] += 1
                for key in ("calls", "bytes", "seconds"):
                    sums[key] += row[key]
        return sorted(found.values(), key=lambda row: (-row["calls"], row["operator"]))

    def refused(self) -> list[dict]:
        """What raises on the chip, over all tests, most calls first."""
        found: dict[str, dict] = {}
        for test, gaps in self.gaps.items():
            for gap in gaps:
                sums = found.setdefault(
                    gap["feature"], {"feature": gap["feature"], "calls": 0, "tests": 0,
                                     "first_test": test, "call_site": gap["call_site"]},
                )  # fmt: skip
                sums["tests"] += 1
                sums["calls"] += gap["calls"]
        return sorted(found.values(), key=lambda row: (-row["calls"], row["feature"]))

    def unknown_rows(self) -> list[dict]:
        rows = [
            {"operator": operator, "dtype": dtype, "calls": calls}
            for (operator, dtype), calls in self.unknown.items()
        ]
        return sorted(rows, key=lambda row: (-row["calls"], row["operator"], row["dtype"]))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session) -> None:
        path = self.config.getoption("--npu-fallback-json")
        if self.is_worker:
            return
        if path:
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.report(), file, indent=1)
        if self._judged_nothing() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def _judged_nothing(self) -> bool:
        return bool(self.config.getoption("--npu-no-fallback") and self.judged and not self.used)

    def report(self) -> dict:
        from importlib.metadata import version

        import torch

        return {
            "format": "opennpu-fallbacks",
            "version": 1,
            "opennpu": version("opennpu"),
            "torch": torch.__version__,
            "profile": _profile(),
            "judged_tests": self.judged,
            "tests_with_npu": self.used,
            "operators": self.operators(),
            "tests": self.tests,
            "refused": self.refused(),
            "refused_tests": self.gaps,
            "unknown": self.unknown_rows(),
        }

    def pytest_terminal_summary(self, terminalreporter) -> None:
        write = terminalreporter.write_line
        if self._judged_nothing():
            write(_UNUSED, red=True)
        elif self.config.getoption("--npu-no-fallback") and self.used and _profile() == "none":
            write(_NO_PROFILE, yellow=True)
        for title, key, rows in (
            ("fell back to the CPU", "operator", self.operators()),
            ("works here, raises an error there", "feature", self.refused()),
        ):
            if not rows:
                continue
            terminalreporter.section(f"npu: {title} (profile {_profile()})")
            width = max(len(row[key]) for row in rows)
            for row in rows:
                place = row["call_site"] or row["first_test"]
                write(
                    f"{row[key]:<{width}}  {row['calls']:>6} calls  {row['tests']:>4} tests  {place}"
                )
        if self.unknown:
            write(
                f"npu: {len(self.unknown)} dtypes of operators are unknown to the profile "
                f"{_profile()}, in {_times(sum(self.unknown.values()))}: no verdict about them "
                "(--npu-fallback-json=FILE lists them)"
            )


def _profile() -> str:
    """The chip that was imitated; the process that writes may have used none itself."""
    import torch_npu

    return torch_npu._C._profile_name()
