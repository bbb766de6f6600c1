# SPDX-License-Identifier: Apache-2.0
"""OpAutoCompare: every result against the CPU's float64 answer to the same inputs.

Each kernel is judged on its own, in forward, backward and the optimizer. The reference is worked
out by threads of our own while the program runs on; stop() waits for what is left.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass

import torch

from op_tools.core import _C, location, options, process_exit, results
from op_tools.core.files import append_csv, result_path, write_csv
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import many, place_of, print_reasons
from op_tools.core.tables import dict_data_list_to_table

FOLDER = os.path.join("op_tools_results", "op_autocompare_result")
COLUMNS = (
    "forward_id,name,allclose,cosine_similarity,max_abs_diff,max_relative_diff,atol,rtol,error_info"
).split(",")
_TOLERANCE = "AUTOCOMPARE_ERROR_TOLERANCE"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class CompareError(RuntimeError):
    """OpAutoCompare found results that are wrong, and was asked to raise."""


def tolerances() -> dict[tuple[str, torch.dtype | None], tuple[float, float]]:
    """ditorch's variables: (operator or API in capitals, dtype) -> (atol, rtol)."""
    found = {}
    both = options.tolerance(_TOLERANCE)
    if both is not None:
        found["", None] = both
    for dtype in _DTYPES:
        name = f"{_TOLERANCE}_{str(dtype).removeprefix('torch.').upper()}"
        of_dtype = options.tolerance(name)
        if of_dtype is not None:
            found["", dtype] = of_dtype
        for variable in os.environ:
            if variable.endswith("_" + name):
                found[variable.removesuffix("_" + name), dtype] = options.tolerance(variable)
    return found


# Reasons of calls with nothing to judge.
NOTHING = ("allocates only", "computes nothing", "returns no tensor")


@dataclass
class Unjudged:
    """Calls that were not judged, of those with something to judge."""

    calls: int
    of: int
    time_share: float  # of the host's time in those calls, 0 to 1
    operators: list[tuple[str, str, int]]  # (operator, why, calls), the most frequent first

    @classmethod
    def of_run(cls, sums: list[dict], skips: list[tuple[str, str, int, int]]) -> Unjudged:
        missed = [skip for skip in skips if not skip[1].startswith(NOTHING)]
        idle = [skip for skip in skips if skip[1].startswith(NOTHING)]
        verdicts = ("pass", "warn", "error", "overflow", "skip")
        of = sum(row[v] for row in sums for v in verdicts) - sum(skip[2] for skip in idle)
        time = sum(row["ns"] for row in sums) - sum(skip[3] for skip in idle)
        operators = sorted((skip[:3] for skip in missed), key=lambda each: -each[2])
        share = sum(skip[3] for skip in missed) / time if time > 0 else 0.0
        return cls(sum(skip[2] for skip in missed), of, share, operators)

    @property
    def share(self) -> float:
        """Of calls or of time, whichever is more; all of it where nothing was seen."""
        return max(self.calls / self.of, self.time_share) if self.of else 1.0

    def __str__(self) -> str:
        if not self.of:
            return "no call was seen"
        ops = len({op for op, _, _ in self.operators})
        shown = [f"{op} {count} ({why})" for op, why, count in self.operators[:3]]
        more = [f"{len(self.operators) - 3} more"] if len(self.operators) > 3 else []
        return (
            f"{self.calls} of {many(self.of, 'call')}, {many(ops, 'operator')}, "
            f"{self.time_share:.0%} of the time: {', '.join(shown + more)}"
        )


class OpAutoCompare(OpTool):
    family = "AUTOCOMPARE"
    feature = "autocompare"
    variables = (
        *("EVERY", "SLOWDOWN", "RAISE", "MAX_UNJUDGED", "THREADS", "QUEUE_MB", "ROWS", "LIMIT"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.call_sites = True
        self.module_paths = True
        self._lock = threading.Lock()  # hooks of several threads
        self._api_rows: list[dict] = []
        # Set before start(); None: as the variable of that name says.
        # OP_AUTOCOMPARE_EVERY: 1 is every call; not set: every call, and fewer once the program would
        # be slower than OP_AUTOCOMPARE_SLOWDOWN times.
        self.every: int | None = None
        self.raise_on_error: bool | None = None  # OP_AUTOCOMPARE_RAISE
        # Of calls, or of their time, in percent; more that was not judged is an error.
        self.max_unjudged: float | None = None  # OP_AUTOCOMPARE_MAX_UNJUDGED
        self.threads: int | None = None  # OP_AUTOCOMPARE_THREADS
        self.queue_megabytes: int | None = None  # OP_AUTOCOMPARE_QUEUE_MB

    def make_core(self) -> _C.Compare:
        return _C.Compare(
            threads=self._setting(self.threads, "THREADS", min(8, os.cpu_count() or 1)),
            queue_bytes=self._setting(self.queue_megabytes, "QUEUE_MB", 64) << 20,
            every=self._every(),
            most_slowdown=options.number("OP_AUTOCOMPARE_SLOWDOWN", 10),
            row_limit=self._row_limit,
            finding_limit=options.number("OP_AUTOCOMPARE_LIMIT", 1000),
            tolerances=tolerances(),
        )

    def _every(self) -> int:
        """0 if not set: all calls, unless the program would be too slow."""
        if self.every is None and not options.text("OP_AUTOCOMPARE_EVERY").strip():
            return 0
        return self._setting(self.every, "EVERY", 1)

    @property
    def _row_limit(self) -> int:
        return options.number("OP_AUTOCOMPARE_ROWS", 100_000)

    @staticmethod
    def _setting(value: int | None, name: str, default: int) -> int:
        variable = f"OP_AUTOCOMPARE_{name}"
        if value is None:
            value = options.number(variable, default)
        if value < 1:
            raise ValueError(f"{variable}={value}: expected a number above 0")
        return value

    def start(self) -> OpAutoCompare:
        self._api_rows, self._in_file, self._path = [], 0, ""
        self._cache_size = options.number("OP_TOOLS_MAX_CACHE_SIZE", 100)
        if self._cache_size < 1:
            raise ValueError(
                f"OP_TOOLS_MAX_CACHE_SIZE={self._cache_size}: expected a number above 0"
            )
        self._raises = self.raise_on_error
        if self._raises is None:
            self._raises = options.number("OP_AUTOCOMPARE_RAISE", 0) > 0
        self._most_unjudged = self.max_unjudged
        if self._most_unjudged is None:
            self._most_unjudged = options.percent("OP_AUTOCOMPARE_MAX_UNJUDGED")
        return super().start()

    def keep_rows(self, forward_id: int, rows: list[dict]) -> None:
        """Of a hook that compared a whole API call, as ditorch does (OP_TOOLS_VERBOSE); its file
        grows by OP_TOOLS_MAX_CACHE_SIZE rows at a time."""
        with self._lock:
            limit = self._row_limit - len(self._api_rows)
            self._api_rows += [{"forward_id": forward_id, **row} for row in rows[: max(limit, 0)]]
            is_full = len(self._api_rows) - self._in_file >= self._cache_size
            if is_full and not self._save("op autocompare result", self._append):
                self._cache_size = 2**62  # said; report() tries once more

    def _append(self) -> str:
        rows = self._api_rows[self._in_file :]
        self._path = self._path or result_path(FOLDER, "op_autocompare_info")
        append_csv(self._path, COLUMNS, rows)
        self._in_file = len(self._api_rows)
        if self._verbose == "ditorch":
            print(dict_data_list_to_table(rows))
        return self._path

    def wait(self) -> None:
        """Until every call so far is judged; stop() does that too."""
        if self._core is not None:
            self._core.wait()

    # ---- what was found, after stop() -----------------------------------------
    def findings(self) -> list[dict]:
        """Calls that did not pass, in order, each with its results."""
        return self._last.findings()

    def errors(self) -> list[dict]:
        """The calls whose results are wrong."""
        return [finding for finding in self.findings() if finding["verdict"] == "error"]

    def rows(self) -> list[dict]:
        """Every result that was judged, in the order of calls."""
        return self._last.rows()

    def table(self) -> list[dict]:
        """Per operator: calls by verdict and the worst E; the worst first."""
        order = lambda row: (-row["error"], -row["overflow"], -row["warn"], -row["e"], row["op"])  # noqa: E731
        return sorted(self._last.sums(), key=order)

    def skips(self) -> list[tuple[str, str, int]]:
        """(operator, why it was not judged, calls)."""
        return [skip[:3] for skip in self._last.skips()]

    def unjudged(self) -> Unjudged:
        """What had something to judge and was not judged."""
        return Unjudged.of_run(self._last.sums(), self._last.skips())

    def costs(self) -> dict[str, float]:
        """calls compared; nanoseconds of their kernels (kernels_ns), of looking at them in the
        program's threads (looking_ns) and of judging them in others (judging_ns); `every`, one call
        in how many is compared, since which call, and the slowdown that would have been."""
        return self._last.costs()

    def save_csv(self, path: str | None = None) -> str:
        """ditorch's file, per API call where those were compared; returns its path."""
        path = path or result_path(FOLDER, "op_autocompare_info")
        write_csv(path, COLUMNS, self._api_rows or map(ditorch_row, self.rows()))
        return path

    def save_results(self, folder: str) -> str:
        """compare.json, for `op-tools report`: into a capture's folder; returns its path."""
        path = os.path.join(folder, results.COMPARE)
        rows = [
            {**row, "site": location(row["site"]) if row["site"] else ""} for row in self.rows()
        ]
        columns = list(rows[0]) if rows else ["number"]
        columns += [name for name in ("got", "expected") if name not in columns]
        dropped, skips = self._last.dropped_rows, [list(skip) for skip in self.skips()]
        return results.save(path, "OpAutoCompare", columns, rows, dropped=dropped, skips=skips)

    # ---- report ----------------------------------------------------------------
    def report(self) -> None:
        unjudged = self.unjudged()
        if unjudged.calls:
            print(f"OpAutoCompare: not judged: {unjudged}")
        for finding in self.findings():
            print(f"OpAutoCompare: {describe(finding)}")
        table = self.table()
        print(
            f"{'name':<52} {'pass':>7} {'warn':>6} {'error':>6} {'overflow':>8} {'skip':>6} {'worst E':>9}"
        )
        for r in table:
            print(
                f"{r['op']:<52} {r['pass']:>7} {r['warn']:>6} {r['error']:>6} {r['overflow']:>8} "
                f"{r['skip']:>6} {r['e']:>9.3g}"
            )
        reasons = ((why, count) for _, why, count in self.skips() if why.startswith(NOTHING))
        print_reasons("OpAutoCompare", "call", "let pass", reasons)
        total = {v: sum(r[v] for r in table) for v in ("pass", "warn", "error", "overflow", "skip")}
        print(
            "OpAutoCompare: " + ", ".join(f"{count} {verdict}" for verdict, count in total.items())
        )
        for line in cost_lines(self.costs()):
            print(f"OpAutoCompare: {line}")
        if len(self._api_rows) > self._in_file:
            self._save("op autocompare result", self._append)
        elif table and not self._path:
            self._save("op autocompare result", self.save_csv)

    def conclude(self) -> None:
        errors = sum(row["error"] for row in self._last.sums())
        unjudged, limit = self.unjudged(), self._most_unjudged
        if errors and self._raises:
            first = next(iter(self.errors()), None)
            text = f"OpAutoCompare: {many(errors, 'call')} with wrong results"
            if first is not None:
                text += f"; the first: {describe(first)}"
        elif limit is not None and unjudged.share * 100 > limit:
            text = f"OpAutoCompare: over {limit:g} % were not judged: {unjudged}"
        else:
            return
        if process_exit.now:
            print(text, file=sys.stderr)
            process_exit.fail()
        else:
            raise CompareError(text)


def cost_lines(costs: dict) -> list[str]:
    """What comparing cost a call, and what was left out for it."""
    if not costs["calls"]:
        return []
    kernel, look, judge = (
        costs[f"{part}_ns"] / costs["calls"] / 1e3 for part in ("kernels", "looking", "judging")
    )
    lines = [
        f"comparing took {look + judge:.1f} us a call ({look:.1f} in the program's threads, "
        f"{judge:.1f} in others), its kernel {kernel:.1f} us"
    ]
    if costs["since"]:
        lines.append(
            f"all calls would have made the program {costs['slowdown']:.0f} times slower: from call "
            f"{costs['since']} on one in {costs['every']} was compared, and every first of its kind "
            "(OP_AUTOCOMPARE_EVERY=1: all)"
        )
    return lines


def describe(finding: dict) -> str:
    """One line: what is wrong, where it was called."""
    result = finding["results"][finding["worst"]] if finding["results"] else {}
    parts = [
        f"{finding['verdict']} {finding['op']} {result.get('result', '')}: {finding['reason']}"
    ]
    if result.get("worst") is not None:
        place = ", ".join(map(str, result["worst"]))
        parts.append(f"[{place}] is {result['got']:.9g}, reference {result['expected']:.9g}")
    return "; ".join(parts + place_of(finding))


# ---- ditorch's rows ----------------------------------------------------------------
def _name_of(row: dict) -> tuple[int, str]:
    """(forward_id, name) as ditorch would say it: of the API call where that is known."""
    label = row["result"].replace("output", "").strip() or ""
    if row["phase"] == "backward":
        label = f" grad{label or '[0]'}"
    elif label and not label.startswith("["):
        label = f" {label}"
    return row["api_call"] or row["number"], (row["api"] or row["op"]) + label


def ditorch_row(row: dict) -> dict:
    number, name = _name_of(row)
    known = row["verdict"] != "skip"
    return {
        "forward_id": number,
        "name": name,
        "allclose": row["allclose"],
        "cosine_similarity": f"{row['cosine_similarity']:.9f}" if known else "-",
        "max_abs_diff": f"{row['max_abs_diff']:.9f}" if known else "-",
        "max_relative_diff": f"{row['max_relative_diff']:.9f}" if known else "-",
        "atol": f"{row['atol']:.9f}",
        "rtol": f"{row['rtol']:.9f}",
        "error_info": row["reason"],
    }
