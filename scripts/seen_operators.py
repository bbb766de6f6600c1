# SPDX-License-Identifier: Apache-2.0
"""Remakes ops/seen_host.txt: which operators the host driver was seen to run, and with which dtypes.

Runs PyTorch's own samples (OpInfo) on npu with every host kernel in use, under the test driver that
notes each call it runs (tests/drivers/faulty_driver.cpp), and writes one line for each overload and
kind: "overload kind[.code] rung,... dtype,...". Only what ran on the driver is noted, so a line
proves rungs 1 to 3: 1 as it was, 2 after copies or casts, 3 as a part of a composition. The host
driver asks for no mending and lacks no kind, so rungs 2 and 3 have runs of their own, where it does.
Run it from a folder without a `torch_npu` of its own: make seen-operators.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import os
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path

import torch
import torch_npu
from torch.testing._internal import common_methods_invocations as infos
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/python")]

from amx import avoid_broken_amx  # noqa: E402
from faulty import faulty_environment  # noqa: E402

FILE = ROOT / "ops/seen_host.txt"
DTYPES = "float32 float64 float16 bfloat16 complex64 int64 int32 uint8 bool".split()
SAMPLES = 4
HEAD = """# SPDX-License-Identifier: Apache-2.0
# Measured: scripts/seen_operators.py (make seen-operators). Which operators the host driver was seen to
# run with all its kernels in use: overload, kind[.code], rungs, dtypes of the first input. On rung 3 the
# kind is a part of what the overload was composed of.
"""


# ---- a child: one dtype --------------------------------------------------------------


def tried(function, *args, **kwargs):
    """The result, or None: some samples fail on every device."""
    with contextlib.suppress(Exception):
        return function(*args, **kwargs)
    return None


def moved(value):
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return value.detach().npu().requires_grad_(value.requires_grad)
    return torch.device("npu") if value in ("cpu", torch.device("cpu")) else value


def samples_of(op, dtype: torch.dtype, gradient: bool):
    """Arguments on npu, of a few of the operator's samples."""
    given = op.sample_inputs("cpu", dtype, requires_grad=gradient)
    for sample in itertools.islice(given, SAMPLES):
        for one in (sample, tried(sample.noncontiguous)) if dtype == torch.float32 else (sample,):
            if one is not None:
                yield tuple(tree_map(moved, part) for part in (one.input, one.args, one.kwargs))


def backward(op, value, args, kwargs) -> None:
    results = tree_flatten(op(value, *args, **kwargs))[0]
    results = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    torch.autograd.backward(results, [torch.ones_like(r) for r in results])


def run_all(op, dtype: torch.dtype) -> None:
    """Every way to call the operator: plain, out=, in-place, by operator sign, backward."""
    for value, args, kwargs in samples_of(op, dtype, gradient=False):
        result = tried(op, value, *args, **kwargs)
        if op.supports_out and result is not None:
            out = tree_map(torch.empty_like, result)
            tried(op, value, *args, **kwargs, out=out)
        for variant in (op.inplace_variant, getattr(op, "operator_variant", None)):
            if variant is not None:
                tried(variant, tree_map(torch.clone, value), *args, **kwargs)
    if dtype.is_floating_point or dtype.is_complex:
        for value, args, kwargs in samples_of(op, dtype, gradient=True):
            tried(backward, op, value, args, kwargs)


class Watch(TorchDispatchMode):
    """Notes for each overload which kinds the driver ran in its name; tries its other forms too."""

    def __init__(self):
        super().__init__()
        self.take = ctypes.CDLL(os.environ["NPU_DRIVER"]).npu_faulty_take_tally
        self.take.restype = ctypes.c_char_p
        self.seen: set[tuple[str, str, str, str]] = set()
        self.tried: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = self.note(func, *args, **kwargs)
        if func.name() not in self.tried:
            self.tried.add(func.name())
            for form in forms_of(func):
                outs = [a.name for a in form._schema.arguments if a.is_out]
                if outs:
                    made = [torch.empty_like(r) for r in tree_flatten(result)[0]]
                    tried(self.note, form, *args, **kwargs, **dict(zip(outs, made)))
                else:
                    tried(self.note, form, args[0].clone(), *args[1:], **kwargs)
        return result

    def note(self, func, *args, **kwargs):
        self.take()
        result = func(*args, **kwargs)
        for line in self.take().decode().splitlines():
            label, kind, dtype = line.split()
            # Copies on the way to another rung have another operator's label.
            if base(label) == base(func.name()):
                self.seen.add((func.name(), kind, dtype, label))
        return result

    def lines(self):
        """overload, kind, rungs, dtype: rungs as the adapters counted them."""
        sites = torch_npu._C._native_calls()
        for name, kind, dtype, label in sorted(self.seen):
            rungs = rungs_of(sites.get(label, []), kind)
            yield f"{name} {kind} {','.join(map(str, rungs))} {dtype}\n"


def forms_of(func):
    """The out and in-place overloads with the arguments of a functional one."""

    def inputs(overload):
        return [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out]

    name = func._schema.name.removeprefix("aten::")
    for packet in (getattr(torch.ops.aten, name, None), getattr(torch.ops.aten, f"{name}_", None)):
        for overload in packet.overloads() if packet else ():
            form = getattr(packet, overload)
            if form is not func and form._schema.is_mutable and inputs(form) == inputs(func):
                yield form


def rungs_of(sites, kind: str) -> list[int]:
    """Of a kind that ran in an operator's name; an operator without sites only calls directly."""
    own = [row for row in sites if kind.split(".")[0] == row["kind"]]
    rungs = [rung for rung in (1, 2) if any(row[rung] for row in own)]
    return rungs or [3 if any(row[3] for row in sites) else 1]


def base(name: str) -> str:
    """aten::add for aten::add.Tensor and aten::add_: labels need not name an overload."""
    return name.partition(".")[0].rstrip("_")


def child(dtype_name: str, out: str) -> int:
    warnings.simplefilter("ignore")
    avoid_broken_amx()
    dtype = getattr(torch, dtype_name)
    databases = (
        infos.op_db,
        infos.foreach_unary_op_db,
        infos.foreach_binary_op_db,
        infos.foreach_pointwise_op_db,
        infos.foreach_reduce_op_db,
        infos.foreach_other_op_db,
    )
    with Watch() as watch:
        for op in itertools.chain(*databases):
            if dtype in op.supported_dtypes("cpu"):
                tried(run_all, op, dtype)
    Path(out).write_text("".join(watch.lines()), encoding="utf-8")
    return 0


# ---- the parent ----------------------------------------------------------------------


class Seen:
    """What all runs saw: rungs and dtypes by overload and kind."""

    def __init__(self):
        self.rungs: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.dtypes: dict[tuple[str, str], set[str]] = defaultdict(set)

    def read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                overload, kind, rungs, dtypes = line.split()
                self.rungs[overload, kind].update(rungs.split(","))
                self.dtypes[overload, kind].update(dtypes.split(","))

    def text(self) -> str:
        lines = [
            f"{' '.join(key)} {','.join(sorted(self.rungs[key]))} {','.join(sorted(dtypes))}\n"
            for key, dtypes in sorted(self.dtypes.items())
        ]
        return HEAD + "".join(lines)


def collect(dtypes: list[str], seen: Seen) -> None:
    env = {**os.environ, **faulty_environment()}
    env |= {"NPU_FAULTY_TALLY": "1", "NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"}
    runs = [(name, {}) for name in dtypes]
    runs += [("float32", {"NPU_HOST_DECLINE": "50,1"})]  # calls are mended
    runs += [("float32", {"NPU_DISABLE_KIND": ",".join(torch_npu._C._composed_kinds())})]
    with tempfile.TemporaryDirectory() as folder:
        for name, lacks in runs:
            out = Path(folder) / name
            command = [sys.executable, __file__, "--child", name, str(out)]
            done = subprocess.run(command, env={**env, **lacks}, cwd=folder)
            if done.returncode != 0:
                raise SystemExit(f"the run with {name} ended with {done.returncode}")
            seen.read(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--add", action="store_true", help="keep what the file says already")
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    seen = Seen()
    collect(options.dtypes, seen)
    if options.add:
        seen.read(options.out)
    options.out.write_text(seen.text(), encoding="utf-8")
    overloads = len({overload for overload, _ in seen.dtypes})
    print(f"{overloads} overloads were seen to run on the host driver")
    return 0


if __name__ == "__main__":
    sys.exit(main())
