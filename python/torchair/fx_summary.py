# SPDX-License-Identifier: Apache-2.0
"""The operator report of TorchAir: which calls of a graph its engine takes, as a CSV file.

Layout, order and printed forms are TorchAir's, byte for byte. One file per graph.
"""

import csv
import datetime
import functools
import io
import os
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch.fx import Node

from torchair import _verdicts

COLUMNS = ("目标函数", "函数类型", "支持状态", "调用次数", "输入统计", "输出统计")


@dataclass
class Row:
    target: str
    kind: str
    status: str
    calls: int = 0
    inputs: Counter = field(default_factory=Counter)
    outputs: Counter = field(default_factory=Counter)

    def cells(self) -> tuple:
        return (
            self.target, self.kind, self.status, self.calls,
            _counted(self.inputs), _counted(self.outputs),
        )  # fmt: skip


def _counted(forms: Counter) -> str:
    # Counter.most_common keeps the order of first sight among equals.
    return "\n".join(f"{count}次：{form}" for form, count in forms.most_common())


def printed(value) -> str:
    """A value of the graph as the report shows it: a tensor is its dtype and sizes."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return dtype + _tuple([str(size) for size in value.shape])
    if isinstance(value, tuple):
        return _tuple([printed(v) for v in value])
    if isinstance(value, list):
        return f"[{', '.join(printed(v) for v in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {printed(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return str(value)
    return repr(value)


def _tuple(parts: list[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _value(node: Node):
    if node.op == "get_attr" and "val" not in node.meta:  # a constant of the graph
        return functools.reduce(getattr, node.target.split("."), node.graph.owning_module)
    return node.meta.get("val")


def values_of(tree):
    """Arguments of a node with what its inputs hold in the place of nodes."""
    if isinstance(tree, Node):
        return _value(tree)
    # FX keeps lists of a class of its own.
    if isinstance(tree, (list, tuple)):
        return (list if isinstance(tree, list) else tuple)(values_of(v) for v in tree)
    if isinstance(tree, dict):
        return {k: values_of(v) for k, v in tree.items()}
    return tree


def arguments_printed(node: Node) -> str:
    args = tuple(values_of(tuple(node.args)))
    text = printed(args)
    return f"{text}, {printed(values_of(dict(node.kwargs)))}" if node.kwargs else text


def settle_values(module: torch.fx.GraphModule, example_inputs) -> None:
    """AOTAutograd leaves what each node gives in its meta; others' graphs get it here."""
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    if all("val" in n.meta for n in calls):
        return
    from torch._guards import detect_fake_mode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(module, detect_fake_mode(example_inputs)).propagate(*example_inputs)


def rows(module: torch.fx.GraphModule, example_inputs=()) -> list[Row]:
    """One per target, in the order of first sight."""
    settle_values(module, example_inputs)
    found: dict[object, Row] = {}
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        verdict = _verdicts.of_call(node)
        if node.target not in found:
            found[node.target] = Row(str(node.target), verdict.kind, verdict.status)
        row = found[node.target]
        row.status = _verdicts.joined(row.status, verdict.status)
        row.calls += 1
        row.inputs[arguments_printed(node)] += 1
        row.outputs[printed(_value(node))] += 1
    return list(found.values())


def text(summary: list[Row]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows(row.cells() for row in summary)
    return out.getvalue()


def file_name() -> str:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d%H%M%S%f")
    return f"summary_rank_{_rank()}_pid_{os.getpid()}_ts_{now}.csv"


def _rank() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return 0


def write(module: torch.fx.GraphModule, example_inputs=(), path: str | None = None) -> str:
    """Writes the report into the current folder (or `path`) and returns its name."""
    path = os.path.abspath(path or file_name())
    if not path.endswith(".csv"):
        raise AssertionError(f"fx_summary: {path!r} does not end with .csv")
    if os.path.islink(path):
        raise RuntimeError(f"fx_summary: {path!r} is a symbolic link; it is not written through")
    data = text(rows(module, example_inputs)).encode("utf-8-sig")
    try:
        os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise RuntimeError(f"fx_summary: {path!r} cannot be written: {error.strerror}") from error
    return path
