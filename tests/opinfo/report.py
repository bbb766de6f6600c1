# SPDX-License-Identifier: Apache-2.0
"""Counts (operator, dtype) pairs of the OpInfo sweep: right, wrong, skipped and why.

python tests/opinfo/report.py --max-skip 0.01 --wrong 0 [--json SWEEP.json ...]

Without --json it sweeps, with the default kernels and with all of the host driver's (--quick: two
samples per case). Known
differences and pairs that cannot be compared are in expected.yaml, each with its reason; both
count as skipped. Random operators are compared in everything but their values, which
test_random_operators.py tests. Exit status 1 when a bound is broken.
"""

import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import sweep  # noqa: E402
from random_operators import COVERED  # noqa: E402


def pair_states(rows, kernels):
    """{(op, dtype): (state, text)} of one sweep; the worst case of a pair counts."""
    known = sweep.known_failures(kernels)
    cases = {}
    for row in rows:
        if row["mode"] != "errors" or row["failure"]:
            cases.setdefault((row["op"], row["dtype"]), []).append(row)
    return {pair: state(*pair, some, known) for pair, some in cases.items()}


def draws(rows):
    """Nothing of its plain calls can be compared, because they draw."""
    plain = [row for row in rows if row["mode"] == "forward"]
    return any(r.get("random") for r in plain) and not any(r.get("same") for r in plain)


def state(op, dtype, rows, known):
    wrong = [r for r in rows if r["failure"] and sweep.key(r) not in known]
    if wrong:
        return "wrong", f"{wrong[0]['mode']}: {wrong[0]['failure']}"
    for row in rows:
        if row["failure"]:
            return "skipped", f"{row['mode']}: {known[sweep.key(row)]}"
    ran = {row["mode"] for row in rows}
    for (name, mode, of), why in known.items():
        if (name, of) == (op, dtype) and mode != "none" and mode not in ran:
            return "skipped", f"{mode}: {why}"
    if draws(rows):
        if op in COVERED:
            return "random", ""
        return "wrong", "a random operator that test_random_operators.py does not know"
    if any(row["compared"] for row in rows):
        return "right", ""
    if (op, "none", dtype) in known:
        return "skipped", known[op, "none", dtype]
    return "wrong", "no sample could be compared, and expected.yaml does not say why"


def print_sweep(name, states):
    count = Counter(state for state, _ in states.values())
    print(f"{name}: {len(states)} pairs of operator and dtype, {dict(sorted(count.items()))}")
    for kind in ("wrong", "skipped"):
        for (op, dtype), (found, why) in sorted(states.items()):
            if found == kind:
                print(f"  {kind} {op} {dtype}: {why}")
    return count


def settled(rows):
    """How samples were settled: by the same bits, by verdict, ..."""
    total = Counter()
    for row in rows:
        total.update({k: v for k, v in row.items() if isinstance(v, int) and k != "compared"})
    return ", ".join(f"{n} {how}" for how, n in total.most_common())


def main():
    parser = sweep.arguments(__doc__.splitlines()[0])
    parser.add_argument("--max-skip", type=float, default=0.01)
    parser.add_argument("--wrong", type=int, default=0)
    parser.add_argument("--json", action="append", default=[])
    options = parser.parse_args()
    if options.json:
        sweeps = [json.loads(Path(p).read_text()) for p in options.json]
    else:
        sweeps = []
        for options.kernels in ("fast", "all"):
            rows = sweep.run(options, options.op)
            sweeps.append({"kernels": options.kernels, "rows": rows})
    failed = False
    for found in sweeps:
        states = pair_states(found["rows"], found["kernels"])
        count = print_sweep(found["kernels"], states)
        print(f"  samples: {settled(found['rows'])}")
        skipped = count["skipped"] / max(1, len(states))
        print(f"  skipped {100 * skipped:.2f} %, at most {100 * options.max_skip:g} %")
        failed |= count["wrong"] > options.wrong or skipped > options.max_skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
