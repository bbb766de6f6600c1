# SPDX-License-Identifier: Apache-2.0
"""`make bench-kernels`: which kernels of the host driver beat rung 4, and up to which size.

python -m benchmarks.kernels [kind[.code] ...] [--write]

Two processes answer turn by turn: one uses every kernel of the host driver, the other none. A kernel
is listed where it is at least as fast and gives the same bits, so that by default training on npu
gives the numbers of the CPU. --write
puts the outcome into drivers/host/fast.txt; with names given, only their lines are replaced.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "drivers" / "host" / "fast.txt"
SIZES = (6, 10, 14, 18, 21)
PAIRS, BATCH_US, SAMPLE = 9, 1500, 1 << 16
# A kernel may be this much slower and still count as "at least as fast": noise of one measurement.
SLACK = 1.02
FLOATS = ("f32", "f64", "bf16", "f16")
ALL = (*FLOATS, "i64", "i32")
DTYPES = {
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "bool": "bool",
}


def probes() -> dict[str, tuple[tuple[str, ...], object]]:
    """kind.code -> (dtypes, call(x, y, z)). Codes named as PyTorch names them need no line."""
    import torch
    from torch.nn import functional as F

    kinds = yaml.safe_load((ROOT / "ops" / "kinds.yaml").read_text())["kinds"]
    codes = {
        kind["kind"]: [c if isinstance(c, str) else next(iter(c)) for c in kind.get("codes", [])]
        for kind in kinds
    }
    found: dict[str, tuple[tuple[str, ...], object]] = {}
    for code in codes["unary"]:
        fn = (
            getattr(torch, code, None)
            or getattr(torch.special, code, None)
            or getattr(F, code, None)
        )
        if fn is not None:
            found[f"unary.{code}"] = (FLOATS, lambda x, y, z, fn=fn: fn(x))
    for kind in ("binary", "compare"):
        for code in codes[kind]:
            fn = getattr(torch, code, None) or getattr(torch.special, code, None)
            if fn is not None:
                found[f"{kind}.{code}"] = (ALL, lambda x, y, z, fn=fn: fn(x, y))
    # Numbers that half types round, as most are.
    found |= {
        "unary_with.clamp": (ALL, lambda x, y, z: x.clamp(0.3, 1)),
        "unary_with.threshold": (FLOATS, lambda x, y, z: F.threshold(x, 0.3, 0.1)),
        "unary_with.leaky_relu": (FLOATS, lambda x, y, z: F.leaky_relu(x)),
        "unary_with.elu": (FLOATS, lambda x, y, z: F.elu(x)),
        "unary_with.hardtanh": (FLOATS, lambda x, y, z: F.hardtanh(x)),
        "unary_with.softplus": (FLOATS, lambda x, y, z: F.softplus(x)),
        "unary_with.pow": (FLOATS, lambda x, y, z: x.pow(2.3)),
        "binary.masked_scale": (
            FLOATS,
            lambda x, y, z: torch.ops.aten.native_dropout_backward(x, mask_like(x), 1.3),
        ),
        "binary.glu": (FLOATS, lambda x, y, z: F.glu(x)),
        "binary.prelu": (FLOATS, lambda x, y, z: F.prelu(x, y[:1])),
        "ternary.where": (ALL, lambda x, y, z: torch.where(x == y, y, z)),
        "ternary.addcmul": (FLOATS, lambda x, y, z: torch.addcmul(x, y, z)),
        "ternary.addcdiv": (FLOATS, lambda x, y, z: torch.addcdiv(x, y, z)),
        "ternary.lerp": (FLOATS, lambda x, y, z: torch.lerp(x, y, z)),
        "reduce.sum": (ALL, lambda x, y, z: x.sum()),
        "reduce.mean": (FLOATS, lambda x, y, z: x.mean()),
        "reduce.max": (ALL, lambda x, y, z: x.amax()),
        "reduce.min": (ALL, lambda x, y, z: x.amin()),
        "arg_reduce.max": (FLOATS, lambda x, y, z: x.argmax()),
        "scan.cumsum": (FLOATS, lambda x, y, z: x.cumsum(0)),
        "cat": (ALL, lambda x, y, z: torch.cat((x, y))),
        "flip": (ALL, lambda x, y, z: x.flip(0)),
        "index_select": (ALL, lambda x, y, z: x.index_select(0, index_like(x))),
        "gather": (ALL, lambda x, y, z: x.gather(0, index_like(x))),
    }
    # Operators that refuse whole dtypes are found out by the first call.
    return found


_indices: dict[int, object] = {}
_masks: dict[int, object] = {}


def index_like(x):
    import torch

    if x.numel() not in _indices:
        _indices[x.numel()] = torch.arange(x.numel(), device="npu")
    return _indices[x.numel()]


def mask_like(x):
    if x.numel() not in _masks:
        _masks[x.numel()] = index_like(x) % 10 != 0
    return _masks[x.numel()]


def operands(dtype: str, numel: int):
    import torch

    generator = torch.Generator().manual_seed(5)
    values = (torch.rand(numel, generator=generator) + 0.25 for _ in range(3))
    kind = getattr(torch, DTYPES[dtype])
    return [
        (v * 3 + 1).to(kind).npu() if kind.is_floating_point is False else v.to(kind).npu()
        for v in values
    ]


def native_calls(probe: str) -> int:
    """How often the driver has run the kind (and code) so far."""
    from torch_npu import _C

    kind, _, code = probe.partition(".")
    return sum(
        site[1] + site[2]
        for sites in _C._native_calls().values()
        for site in sites
        if site["kind"] == kind and code in ("", site["code"])
    )


def hash_of(result) -> str:
    import torch

    data = result.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(data).hexdigest()


def worker() -> int:
    """Answers {"probe", "dtype", "numel", "repeat"} with microseconds a call, or an error."""
    import torch
    import torch_npu  # noqa: F401

    from benchmarks.measure import timed

    torch.set_num_threads(2)
    calls, ready = probes(), {}
    for line in sys.stdin:
        order = json.loads(line)
        try:
            key = (order["dtype"], order["numel"])
            if key not in ready:
                ready = {key: operands(*key)}
            x, y, z = ready[key]
            fn = calls[order["probe"]][1]
            before = native_calls(order["probe"])
            result = fn(x, y, z)
            answer = {
                "native": native_calls(order["probe"]) > before,
                "bits": hash_of(result),
                "us": timed(partial(fn, x, y, z), order["repeat"]),
            }
        except Exception as error:  # what an operator does not take is an answer too
            answer = {"error": str(error).splitlines()[0]}
        print(json.dumps(answer), flush=True)
    return 0


class Process:
    def __init__(self, **env: str) -> None:
        command = [sys.executable, "-m", "benchmarks.kernels", "--worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "NPU_FALLBACK": "silent", **env},
        )

    def ask(self, **order) -> dict:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def ratio(native: Process, rung4: Process, probe: str, dtype: str, size: int) -> float | None:
    """Native / rung 4; None when one of them does not take the dtype."""
    order = {"probe": probe, "dtype": dtype, "numel": 1 << size}
    first = native.ask(**order, repeat=1), rung4.ask(**order, repeat=1)
    if any("error" in answer for answer in first) or not first[0]["native"]:
        return None
    assert not first[1]["native"], f"{probe}: the driver took a kind that was switched off"
    repeat = max(1, int(BATCH_US / max(0.5, rung4.ask(**order, repeat=3)["us"])))
    ratios = []
    for _ in range(PAIRS):
        ours = native.ask(**order, repeat=repeat)["us"]
        ratios.append(ours / rung4.ask(**order, repeat=repeat)["us"])
    return statistics.median(ratios)


def limit(native: Process, rung4: Process, probe: str, dtype: str) -> str | None:
    """The largest size up to which the kernel is at least as fast everywhere: "16", "any" or None."""
    most = None
    # Many values, whatever the size: a few may agree by chance.
    order = {"probe": probe, "dtype": dtype, "numel": SAMPLE, "repeat": 1}
    if native.ask(**order).get("bits") != rung4.ask(**order).get("bits"):
        return None
    for size in SIZES:
        found = ratio(native, rung4, probe, dtype, size)
        if found is None or found > SLACK:
            return most
        most = str(size)
    return "any"


def other_kinds() -> str:
    """Everything with a probe, for NPU_DISABLE_KIND."""
    return ",".join(sorted({name.split(".")[0] for name in probes()}))


def rewrite(lines: dict[tuple[str, str], str | None]) -> None:
    measured = {name for name, _ in lines}
    kept = [
        line
        for line in TABLE.read_text(encoding="utf-8").splitlines()
        if not line.strip() or line.startswith("#") or line.split()[0] not in measured
    ]
    new = [f"{name:24} {dtype:5} {most}" for (name, dtype), most in lines.items() if most]
    TABLE.write_text("\n".join(kept + new) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="kind or kind.code; default: all that have a probe"
    )
    parser.add_argument("--write", action="store_true", help="record in drivers/host/fast.txt")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker()
    chosen = {
        name: probe
        for name, probe in probes().items()
        if not options.names or name in options.names or name.split(".")[0] in options.names
    }
    if not chosen:
        parser.error(f"no probe for {', '.join(options.names)}")
    native = Process(NPU_HOST_KERNELS="all")
    rung4 = Process(NPU_DISABLE_KIND=other_kinds())
    lines: dict[tuple[str, str], str | None] = {}
    for name, (dtypes, _) in chosen.items():
        for dtype in dtypes:
            lines[name, dtype] = limit(native, rung4, name, dtype)
            print(f"{name:24} {dtype:5} {lines[name, dtype] or '-'}", flush=True)
    if options.write:
        rewrite(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
