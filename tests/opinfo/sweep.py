# SPDX-License-Identifier: Apache-2.0
"""Every operator of PyTorch's OpInfo database through the npu device, against the CPU.

python tests/opinfo/sweep.py [--op NAME ...] [--mode MODE ...] [--dtype DTYPE ...]
    [--kernels fast|all] [--workers 2] [--samples 0] [--quick] [--json FILE]

Operators run in child processes, so that a crash has a name. Exit status 1 when something failed
that expected.yaml does not name, or the other way round.
"""

import argparse
import contextlib
import dataclasses
import faulthandler
import itertools
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
SECONDS_PER_CASE = 300


# What CUDA_VISIBLE_DEVICES was, for children whose driver may be a GPU's; None where they see no GPU either.
shown_gpus = None


def hide_gpus():
    """Before torch is imported: OpInfo asks CUDA about its devices, and no forked child can use CUDA after that."""
    global shown_gpus
    if os.environ.get("NPU_DRIVER", "host") in ("", "host"):
        shown_gpus = None  # autograd's threads would call CUDA, for nothing
    else:
        shown_gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asks without the CUDA runtime


def show_gpus_again():
    """In a child, before the plugin is imported."""
    if shown_gpus == "all":
        del os.environ["CUDA_VISIBLE_DEVICES"]
    elif shown_gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = shown_gpus


def operators(names):
    # The backend comes after the fork: a driver is of no use to the children of its process.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    hide_gpus()
    # Set by scikit-learn and joblib; with it the children of a process with OpenMP threads die.
    os.environ.pop("KMP_INIT_AT_FORK", None)
    os.environ.setdefault("NPU_FALLBACK", "silent")
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = []
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if not names or name in names or op.name in names:
            chosen.append((name, op))
    return chosen


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def run_one(name, op, wanted, out):
    """One operator in all modes and dtypes; a JSON line before and after each case."""
    import torch
    from cases import MODES, applies, first_line, run_operator

    run_case = wanted.run or run_operator
    dtypes = {torch.float32, *op.supported_dtypes("cpu")}
    for mode in wanted.modes or MODES:
        for dtype in sorted(dtypes, key=str):
            if wanted.dtypes and dtype_name(dtype) not in wanted.dtypes:
                continue
            if not applies(op, mode, dtype):
                continue
            where = {"mode": mode, "dtype": dtype_name(dtype)}
            if (name, mode, dtype_name(dtype)) in wanted.skip:
                continue
            print(json.dumps({**where, "begins": True}), file=out, flush=True)
            began = time.monotonic()
            try:
                row = run_case(op, mode, dtype, wanted.samples)
            except Exception as error:
                text = f"no samples: {type(error).__name__}: {first_line(error)}"
                row = {"compared": 0, "failure": text}
            row["seconds"] = round(time.monotonic() - began, 3)
            print(json.dumps({**where, **row}), file=out, flush=True)
    print(json.dumps({"done": True}), file=out, flush=True)


class Worker:
    """A child process that runs operators one by one until it is told to stop, or dies."""

    def __init__(self, chosen, wanted):
        self.name, self.lines, self.rest, self.began = None, [], b"", 0.0
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.orders)
            os.close(self.answers)
            self.work(chosen, wanted, orders, answers)
        os.close(orders)
        os.close(answers)

    @staticmethod
    def work(chosen, wanted, orders, answers):
        status = 1
        faulthandler.enable()  # where it was, to stderr; the parent reports the crash itself
        try:
            show_gpus_again()
            import torch
            import torch_npu  # noqa: F401

            torch.set_num_threads(1)
            with os.fdopen(orders) as numbers, os.fdopen(answers, "w") as out:
                for number in numbers:
                    if int(number) < 0:
                        break
                    run_one(*chosen[int(number)], wanted, out)
            status = 0
        finally:
            os._exit(status)

    def start(self, number, name):
        self.name, self.lines, self.began = name, [], time.monotonic()
        os.write(self.orders, f"{number}\n".encode())

    def read(self):
        """True when its operator is finished; None when the worker is gone."""
        data = os.read(self.answers, 1 << 16)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.lines += [json.loads(line) for line in lines]
        self.began = time.monotonic()
        return bool(self.lines) and "done" in self.lines[-1]

    def rows(self, died=None):
        """What it reported, and a failure for the case it died in."""
        rows, begun = [], {"mode": "forward", "dtype": "float32"}
        for line in self.lines:
            if line.get("begins"):
                begun = {"mode": line["mode"], "dtype": line["dtype"]}
            elif "done" not in line:
                rows.append({"op": self.name, **line})
        if died:
            rows.append({"op": self.name, **begun, "compared": 0, "failure": died})
        return rows

    def end(self):
        """Stops it; says how it died, or None."""
        # Not by closing the pipe: workers forked later hold its other end too.
        with contextlib.suppress(BrokenPipeError):
            os.write(self.orders, b"-1\n")
        os.close(self.orders)
        os.close(self.answers)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return f"died: {signal.Signals(os.WTERMSIG(status)).name}"
        return f"died: exit status {os.WEXITSTATUS(status)}" if status else None


def sweep(chosen, workers, wanted, progress=None):
    waiting, rows, running = list(range(len(chosen))), [], {}

    def feed(worker):
        if waiting:
            number = waiting.pop(0)
            worker.start(number, chosen[number][0])
            running[worker.answers] = worker
        else:
            worker.end()

    for _ in range(min(workers, len(chosen))):
        feed(Worker(chosen, wanted))
    while running:
        ready, _, _ = select.select(list(running), [], [], 5.0)
        for fd in ready:
            worker = running[fd]
            finished = worker.read()
            if finished is False:
                continue
            del running[fd]
            if finished:
                rows += worker.rows()
            else:
                rows += worker.rows(worker.end() or "died: no answer")
                worker = Worker(chosen, wanted) if waiting else None
            if worker:
                feed(worker)
            if progress:
                progress(len(chosen) - len(waiting) - len(running), len(chosen), rows)
        for worker in running.values():
            if time.monotonic() - worker.began > SECONDS_PER_CASE:
                os.kill(worker.pid, signal.SIGKILL)
    return rows


# ---- what is known ----


def listed(value):
    return value if isinstance(value, list) else [value]


def expected_cases(kernels):
    """((op, mode, dtype), entry) of expected.yaml, for one choice of kernels."""
    for entry in yaml.safe_load(Path(HERE / "expected.yaml").read_text()) or []:
        if kernels in listed(entry.get("kernels", ["fast", "all"])):
            for case in itertools.product(*(listed(entry[k]) for k in KEY)):
                yield case, entry


def known_failures(kernels):
    return {case: entry["reason"] for case, entry in expected_cases(kernels)}


def not_to_run(kernels):
    return {case for case, entry in expected_cases(kernels) if not entry.get("run", True)}


KEY = ("op", "mode", "dtype")


def key(row):
    return tuple(row[k] for k in KEY)


def judge(rows, kernels, complete):
    """Lines to print about what is not as expected.yaml says."""
    known = known_failures(kernels)
    failed = {key(row): row["failure"] for row in rows if row["failure"]}
    lines = [f"FAILED {' '.join(k)}: {why}" for k, why in sorted(failed.items()) if k not in known]
    if complete:
        # Not every PyTorch has every operator: what did not run did not pass.
        passed = {key(row) for row in rows} - set(failed)
        lines += [f"PASSED, remove from expected.yaml: {' '.join(k)}" for k in known if k in passed]
    return lines


@dataclasses.dataclass
class Wanted:
    modes: list
    dtypes: list
    samples: int = 0
    skip: set = dataclasses.field(default_factory=set)
    run: object = None  # (op, mode, dtype, samples) -> row; cases.run_operator


def run(options, names=()):
    """Rows of one sweep."""
    os.environ["NPU_HOST_KERNELS"] = options.kernels
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from amx import avoid_broken_amx

    avoid_broken_amx()
    chosen = operators(set(names))

    told = set(known_failures(options.kernels))

    def progress(done, total, rows):
        for row in rows:  # a sweep that is cut short says what it found
            if row["failure"] and key(row) not in told:
                told.add(key(row))
                print(" ".join(key(row)) + ": " + row["failure"], file=sys.stderr, flush=True)
        if sys.stderr.isatty() or done == total or done % 50 == 0:
            failed = sum(bool(row["failure"]) for row in rows)
            print(f"{done}/{total} operators, {failed} failures", file=sys.stderr, flush=True)

    modes = options.mode
    if options.quick:
        from cases import MODES

        modes = modes or [mode for mode in MODES if mode != "reference"]
        options.samples = options.samples or 2
    wanted = Wanted(modes, options.dtype, options.samples, not_to_run(options.kernels))
    rows = sweep(chosen, options.workers, wanted, progress)
    if any("died: SIG" in (row["failure"] or "") for row in rows):
        # What libraries have set in this environment may be the reason.
        marks = ("KMP", "OMP", "GOMP", "MKL", "LD_", "MALLOC", "NPU", "PYTORCH", "TORCH")
        print(
            "environment:",
            {k: v for k, v in os.environ.items() if k.startswith(marks)},
            file=sys.stderr,
        )
    return rows


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--op", action="append", default=[])
    parser.add_argument("--mode", action="append", default=[])
    parser.add_argument("--dtype", action="append", default=[])
    parser.add_argument("--kernels", choices=("fast", "all"), default="fast")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--samples", type=int, default=0, help="most per case; 0 is all")
    parser.add_argument("--quick", action="store_true", help="two samples, no reference inputs")
    return parser


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--json", help="write all rows there")
    options = parser.parse_args()
    start = time.monotonic()
    rows = run(options, options.op)
    if options.json:
        result = {"kernels": options.kernels, "samples": options.samples, "rows": rows}
        Path(options.json).write_text(json.dumps(result, indent=0))
    seconds = time.monotonic() - start
    print(f"{len({r['op'] for r in rows})} operators, {len(rows)} cases, {seconds:.0f} s")
    for mode in sorted({row["mode"] for row in rows}):
        some = [row for row in rows if row["mode"] == mode]
        compared = sum(row["compared"] for row in some)
        judged = sum(row.get("verdict", 0) + row.get("second rule", 0) for row in some)
        print(f"{mode}: {len(some)} cases, {compared} samples compared, {judged} by verdict")
    partial = options.op or options.samples or options.mode or options.dtype
    lines = judge(rows, options.kernels, complete=not partial)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
