# SPDX-License-Identifier: Apache-2.0
"""Does every tool work here? One line each, on every device there is.

python -m op_tools.selftest
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator

import torch
from torch import nn

from op_tools import captures
from op_tools.cli import run_op_from_data
from op_tools.core import _C, __version__, options
from op_tools.core.op_tool import OpTool
from op_tools.ditorch_compat.features import apply_feature
from op_tools.tools import registry


def devices() -> list[str]:
    accelerator = options.accelerator()
    return ["cpu"] + ([accelerator] if accelerator is not None else [])


def train(device: str) -> list[torch.Tensor]:
    """A step of a small model; its parameters afterwards."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 30).view(5, 6).to(device)
    target = (torch.arange(5) % 3).to(device)
    nn.functional.cross_entropy(model(x), target).backward()
    optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]


def check(is_so: bool, what: str) -> None:
    if not is_so:
        raise AssertionError(what)


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b))


def observe(device: str) -> str:
    plain = train(device)
    tool = registry.OpObserve()
    with tool:
        watched = train(device)
    check(_same(plain, watched), "results changed")
    phases = {phase for counts in tool.counts().values() for phase in counts}
    check(phases == {"forward", "backward", "optimizer"}, f"seen only in {phases}")
    return f"{len(tool.records())} calls of {len(tool.counts())} operators"


def overflow(device: str) -> str:
    tool = registry.OpOverflowCheck()
    with tool:
        train(device)
        (torch.ones(4, device=device) * 1e38).mul(10.0)
    first = tool.first()
    check(first is not None and "mul" in first["op"], f"found {first and first['op']}")
    return f"found {first['op']}"


def fallback(device: str) -> str:
    plain = train("cpu")
    tool = registry.OpFallback()
    with tool:
        fallen = train(device)
    check(_same(plain, fallen), "an SGD step differs from the cpu's")
    return f"{sum(count for _, why, count in tool.counts() if not why)} calls, an SGD step as on the cpu"


def cast(device: str) -> str:
    x = torch.full((4,), 300.0, device=device, dtype=torch.float16, requires_grad=True)
    tool = registry.OpDtypeCast()
    with tool:
        y = (x * 2).sum()
        y.backward()
    check(y.dtype == x.grad.dtype == torch.float16, "dtypes changed")
    return f"{sum(count for _, why, count in tool.counts() if not why)} calls in float32"


def measure(device: str) -> str:
    tool = registry.OpTimeMeasure()
    with tool:
        train(device)
    total = sum(row["total"] for row in tool.table())
    check(total > 0, "no time passed")
    return f"{len(tool.samples())} calls, {total:.2f} ms"


def capture(device: str) -> str:
    tool = registry.OpCapture()
    with tool:
        train(device)
    found = captures.open(tool.folder)
    check(len(found) > 10 and not found.problems, f"{len(found)} records, {found.problems}")
    flags = [tool.folder, "--run_times", "1", "--device", device]
    check(run_op_from_data.main(flags) == 0, "not the same when run again")
    return f"{len(found)} calls captured, the same when run again"


def ditorch_capture(device: str) -> str:
    with _variable("OP_CAPTURE_FORMAT", "ditorch"), registry.OpCapture() as tool:
        train(device)
    flags = ["op_tools_results/op_capture_results", "--run_times", "1", "--device", device]
    check(run_op_from_data.main(flags) == 0, "not the same when run again")
    return f"{tool.saved} calls in ditorch's folders, the same when run again"


def compare(device: str) -> str:
    tool = registry.OpAutoCompare()
    with tool:
        train(device)
    wrong = [finding["op"] for finding in tool.errors()]
    check(not wrong, f"wrong results of {wrong}")
    return f"{len(tool.rows())} results judged"


def _runs(tool: type[OpTool]) -> Callable[[str], str]:
    """The check of a tool that has none of its own: a step under it is the step without it."""

    def check_it(device: str) -> str:
        plain = train(device)
        with tool():
            watched = train(device)
        check(tool.changes_results or _same(plain, watched), "results changed")
        return "a training step under it"

    return check_it


def feature(device: str) -> str:
    before = torch.add
    x = torch.ones(3, device=device)
    text = io.StringIO()
    with contextlib.redirect_stdout(text), apply_feature("torch.add", "dump_op_args"):
        torch.add(x, x)
    check("aten::add.Tensor" in text.getvalue() and torch.add is before, text.getvalue())
    return "applied to torch.add and taken back"


CHECKS: list[tuple[str, Callable[[str], str]]] = [
    ("OpObserve", observe),
    ("OpOverflowCheck", overflow),
    ("OpFallback", fallback),
    ("OpDtypeCast", cast),
    ("OpTimeMeasure", measure),
    ("OpCapture", capture),
    ("OpCapture ditorch", ditorch_capture),
    ("OpAutoCompare", compare),
    ("apply_feature", feature),
]
_checked = {name for name, _ in CHECKS}
CHECKS += [(t.__name__, _runs(t)) for t in registry.TOOLS if t.__name__ not in _checked]


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """In a folder of its own, which goes away again."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def run(name: str, test: Callable[[str], str], device: str) -> bool:
    """One line; of a failure also where it was."""
    said = io.StringIO()
    try:
        with _elsewhere(), _variable("OP_TOOLS_DEVICE", device), contextlib.redirect_stdout(said):
            found = test(device)
        check(_C.idle() and _C.tap_count() == 0, "something still runs")
    except Exception as error:
        print(f"FAIL  {name:<18} {device:<5} {type(error).__name__}: {error}")
        traceback.print_exc()
        return False
    print(f"ok    {name:<18} {device:<5} {found}")
    return True


def main(arguments: list[str] | None = None) -> int:
    """`arguments`: of the command line; none by default, not the caller's."""
    parser = argparse.ArgumentParser(prog="python -m op_tools.selftest", description=__doc__)
    parser.add_argument("--version", action="version", version=f"op_tools {__version__}")
    parser.parse_args(arguments or [])
    print(f"op_tools {__version__}, torch {torch.__version__}, {', '.join(devices())}")
    results = [run(name, test, device) for device in devices() for name, test in CHECKS]
    print(f"{sum(results)} of {len(results)} passed")
    return 0 if all(results) else 1
