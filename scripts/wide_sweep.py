#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds half kernels that belong into ops/wide.yaml: OpInfo's samples on a device, each operator against float64.

scripts/wide_sweep.py [--device cpu] [--samples 12] [--op NAME]
"""

import argparse
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/opinfo"))

import torch  # noqa: E402
from accelerator import full_name, op_db  # noqa: E402
from half_judge import BITS, judge_operator, new_findings  # noqa: E402
from wide_reference import ROWS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="npu")
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--op", help="only this operator of OpInfo")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found, failed = new_findings(), {}
    for op in op_db:
        for dtype in BITS:
            if dtype in op.dtypes and args.op in (None, op.name):
                try:
                    judge_operator(op, dtype, args.device, args.samples, found)
                except Exception as error:
                    failed[full_name(op), str(dtype)] = str(error).splitlines()[:1]
    for (name, dtype), (count, worst, where) in sorted(found.items()):
        plain = name.rstrip("_") if not name.startswith("__") else name
        listed = any(getattr(torch, dtype) in row["dtypes"] for row in ROWS.get(plain, ()))
        print(
            f"{name} {dtype}: {count} elements, the worst {worst:.1f} off{'' if listed else ', NOT LISTED'}"
            f" ({', '.join(sorted(where)[:3])})"
        )
    for key, text in failed.items():
        print(f"{' '.join(key)}: not judged: {' '.join(text)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
