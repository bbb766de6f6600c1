# SPDX-License-Identifier: Apache-2.0
"""Every operator of PyTorch's OpInfo database through the npu device, against the CPU.

python tests/opinfo/sweep.py [--op NAME ...] [--workers 2] [--samples 0] [--json FILE]

Each operator runs in a child process of its own, so that a crash has a name. Exit status 1 when
something failed that expected.yaml does not name, or the other way round.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
SECONDS_PER_OPERATOR = 300


def operators(names):
    # The backend comes after the fork: a driver is of no use to the children of its process.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    # Nor is a GPU, and the autograd threads of the children would call it.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("NPU_FALLBACK", "silent")
    from cases import UNINITIALISED
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = []
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if op.name not in UNINITIALISED and (not names or name in names or op.name in names):
            chosen.append((name, op))
    return chosen


def run_one(op, most, out):
    """One operator in all modes and dtypes; a JSON line before and after each case."""
    from cases import DTYPES, MODES, applies, run_operator

    for mode in MODES:
        for dtype in DTYPES:
            if not applies(op, mode, dtype):
                continue
            where = {"mode": mode, "dtype": str(dtype).removeprefix("torch.")}
            print(json.dumps({**where, "begins": True}), file=out, flush=True)
            compared, skipped, failure = run_operator(op, mode, dtype, most)
            row = {**where, "compared": compared, "skipped": skipped, "failure": failure}
            print(json.dumps(row), file=out, flush=True)
    print(json.dumps({"done": True}), file=out, flush=True)


class Worker:
    """A child process that runs operators one by one until it is told to stop, or dies."""

    def __init__(self, chosen, most):
        self.name, self.lines, self.rest, self.began = None, [], b"", 0.0
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.orders)
            os.close(self.answers)
            self.work(chosen, most, orders, answers)
        os.close(orders)
        os.close(answers)

    @staticmethod
    def work(chosen, most, orders, answers):
        status = 1
        try:
            import torch
            import torch_npu  # noqa: F401

            torch.set_num_threads(1)
            with os.fdopen(orders) as numbers, os.fdopen(answers, "w") as out:
                for number in numbers:
                    if int(number) < 0:
                        break
                    run_one(chosen[int(number)][1], most, out)
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
            rows.append({"op": self.name, **begun, "compared": 0, "skipped": 0, "failure": died})
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


def sweep(chosen, workers, most, progress=None):
    waiting, rows, running = list(range(len(chosen))), [], {}

    def feed(worker):
        if waiting:
            number = waiting.pop(0)
            worker.start(number, chosen[number][0])
            running[worker.answers] = worker
        else:
            worker.end()

    for _ in range(min(workers, len(chosen))):
        feed(Worker(chosen, most))
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
                worker = Worker(chosen, most) if waiting else None
            if worker:
                feed(worker)
            if progress:
                progress(len(chosen) - len(waiting) - len(running), len(chosen), rows)
        for worker in running.values():
            if time.monotonic() - worker.began > SECONDS_PER_OPERATOR:
                os.kill(worker.pid, signal.SIGKILL)
    return rows


def key(row):
    return f"{row['op']} {row['mode']} {row['dtype']}"


def known_failures():
    return {
        key(row): row["reason"]
        for row in yaml.safe_load(Path(HERE / "expected.yaml").read_text()) or []
    }


def judge(rows, complete):
    """Lines to print about what is not as expected.yaml says."""
    known = known_failures()
    failed = {key(row): row["failure"] for row in rows if row["failure"]}
    lines = [f"FAILED {k}: {why}" for k, why in sorted(failed.items()) if k not in known]
    if complete:
        # Not every PyTorch has every operator: what did not run did not pass.
        passed = {key(row) for row in rows} - set(failed)
        lines += [f"PASSED, remove from expected.yaml: {k}" for k in known if k in passed]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--samples", type=int, default=0, help="most per case; 0 is all")
    parser.add_argument("--json", help="write all rows there")
    options = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from amx import avoid_broken_amx

    avoid_broken_amx()
    chosen = operators(set(options.op))

    def progress(done, total, rows):
        if sys.stderr.isatty() or done == total or done % 50 == 0:
            failed = sum(bool(row["failure"]) for row in rows)
            print(f"{done}/{total} operators, {failed} failures", file=sys.stderr, flush=True)

    start = time.monotonic()
    rows = sweep(chosen, options.workers, options.samples, progress)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=0))
    compared = sum(row["compared"] for row in rows)
    skipped = sum(row["skipped"] for row in rows)
    print(
        f"{len(chosen)} operators, {len(rows)} cases, {compared} samples compared, "
        f"{skipped} not comparable, {time.monotonic() - start:.0f} s"
    )
    for mode in sorted({row["mode"] for row in rows}):
        some = [row for row in rows if row["mode"] == mode]
        compared = sum(row["compared"] for row in some)
        print(f"{mode}: {len(some)} cases, {compared} samples compared")
    lines = judge(rows, complete=not options.op and not options.samples)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
