# SPDX-License-Identifier: Apache-2.0
"""Every operator of PyTorch's OpInfo database through the npu device, against the CPU.

python tests/opinfo/sweep.py [--op NAME ...] [--workers 2] [--samples 0] [--json FILE]

Each operator runs in a child process of its own, so that a crash has a name. Exit status 1 when
something failed that expected.yaml does not name, or the other way round.
"""

import argparse
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
    import torch_npu  # noqa: F401
    from cases import UNINITIALISED
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = []
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if op.name not in UNINITIALISED and (not names or name in names or op.name in names):
            chosen.append((name, op))
    return chosen


def child(op, most, pipe):
    """Runs one operator in all modes and dtypes; one JSON line per result."""
    import torch
    from cases import DTYPES, MODES, applies, run_operator

    torch.set_num_threads(1)
    with os.fdopen(pipe, "w") as out:
        for mode in MODES:
            for dtype in DTYPES:
                if not applies(op, mode, dtype):
                    continue
                where = {"mode": mode, "dtype": str(dtype).removeprefix("torch.")}
                print(json.dumps({**where, "begins": True}), file=out, flush=True)
                compared, skipped, failure = run_operator(op, mode, dtype, most)
                row = {**where, "compared": compared, "skipped": skipped, "failure": failure}
                print(json.dumps(row), file=out, flush=True)


class Child:
    def __init__(self, name, op, most):
        self.name, self.text, self.began = name, b"", time.monotonic()
        self.read_end, write_end = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.read_end)
                child(op, most, write_end)
                status = 0
            finally:
                os._exit(status)
        os.close(write_end)

    def rows(self, ended):
        """What it reported, and a failure for the case it died in."""
        rows, begun = [], None
        for line in self.text.decode().splitlines():
            row = json.loads(line)
            if row.pop("begins", False):
                begun = row
            else:
                rows.append({"op": self.name, **row})
                begun = None
        if ended and begun is None:
            begun = {"mode": "forward", "dtype": "float32"}
        if ended:
            rows.append({"op": self.name, **begun, "compared": 0, "skipped": 0, "failure": ended})
        return rows

    def collect(self):
        os.close(self.read_end)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return self.rows(f"died: {signal.Signals(os.WTERMSIG(status)).name}")
        return self.rows("died: exit status 1" if os.WEXITSTATUS(status) else None)


def sweep(chosen, workers, most, progress=None):
    waiting, running, rows = list(reversed(chosen)), {}, []
    while waiting or running:
        while waiting and len(running) < workers:
            one = Child(*waiting.pop(), most)
            running[one.read_end] = one
        ready, _, _ = select.select(list(running), [], [], 5.0)
        for fd in ready:
            data = os.read(fd, 1 << 16)
            running[fd].text += data
            if not data:
                done = running.pop(fd)
                rows += done.collect()
                if progress:
                    progress(len(chosen) - len(waiting) - len(running), len(chosen), rows)
        for one in running.values():
            if time.monotonic() - one.began > SECONDS_PER_OPERATOR:
                os.kill(one.pid, signal.SIGKILL)
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
        lines += [f"PASSED, remove from expected.yaml: {k}" for k in known if k not in failed]
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
    lines = judge(rows, complete=not options.op and not options.samples)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
