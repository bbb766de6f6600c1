# SPDX-License-Identifier: Apache-2.0
"""Which calls of a model go into graphs, which do not, why, and which to fix first."""

import collections
import functools
import os
import time
from dataclasses import asdict, dataclass, field

import torch
from torch.utils import _pytree as pytree

from torchair import _verdicts
from torchair._report_html import as_html
from torchair._report_text import as_csv, as_json, as_markdown

SCHEMA = 1


@dataclass
class Call:
    """One node of one graph."""

    target: str
    status: str
    reason: str
    graph: int
    phase: str
    module: str
    location: str
    inputs: str
    outputs: str
    count: int = 1
    seconds: float = 0.0
    dtypes: str = ""  # "refused: float64", "unknown: int8": verdicts of the profile


@dataclass
class Break:
    """A place where Dynamo left the graph."""

    reason: str
    location: str


@dataclass
class Report:
    """`calls` in the order of the graphs; everything else is made from them."""

    profile: str
    graphs: int
    calls: list[Call] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    fixes: dict[str, str] = field(default_factory=dict)
    repros: dict[str, str] = field(default_factory=dict)

    def coverage(self, by: str = "calls") -> float:
        """Share of calls (or of measured time, by="time") that goes into graphs, 0 to 1."""
        if by not in ("calls", "time"):
            raise ValueError(f"coverage: by is 'calls' or 'time', but got {by!r}")
        weight = (lambda c: 1.0) if by == "calls" else (lambda c: c.seconds)
        whole = sum(weight(c) for c in self.calls)
        inside = sum(weight(c) for c in self.calls if c.status in INSIDE)
        return inside / whole if whole else 1.0

    def unsupported(self) -> list[Call]:
        return [c for c in self.calls if c.status not in INSIDE]

    def dtype_gaps(self) -> list[tuple[str, str, int, str]]:
        """(operator, "refused: float64", calls, location): the refused ones first."""
        seen: dict[tuple[str, str], list] = {}
        for call in self.calls:
            if call.dtypes:
                row = seen.setdefault((call.target, call.dtypes), [0, call.location])
                row[0] += 1
        rows = [(name, dtypes, calls, place) for (name, dtypes), (calls, place) in seen.items()]
        return sorted(rows, key=lambda row: (not row[1].startswith("refused"), -row[2], row[0]))

    def fix_next(self) -> list[tuple[str, int, float]]:
        """(operator, calls, seconds) outside of graphs: most time first, then most calls."""
        seen: dict[str, list] = collections.defaultdict(lambda: [0, 0.0])
        for call in self.unsupported():
            seen[call.target][0] += 1
            seen[call.target][1] += call.seconds
        rows = [(name, calls, seconds) for name, (calls, seconds) in seen.items()]
        return sorted(rows, key=lambda row: (-row[2], -row[1], row[0]))

    def assert_coverage(self, min: float = 1.0, by: str = "calls") -> None:
        got = self.coverage(by)
        if got < min:
            worst = ", ".join(name for name, _, _ in self.fix_next()[:5])
            raise AssertionError(
                f"coverage by {by} is {got:.1%}, below {min:.1%}; outside of graphs: {worst}"
            )

    def as_dict(self) -> dict:
        return {
            "schema": SCHEMA,
            "profile": self.profile,
            "graphs": self.graphs,
            "coverage": {"calls": self.coverage(), "time": self.coverage("time")},
            "fix_next": [
                {
                    "target": name,
                    "calls": calls,
                    "seconds": seconds,
                    "fix": self.fixes.get(name, ""),
                    "repro": self.repros.get(name, ""),
                }
                for name, calls, seconds in self.fix_next()
            ],
            "dtypes": [
                {"target": name, "dtypes": dtypes, "calls": calls, "location": place}
                for name, dtypes, calls, place in self.dtype_gaps()
            ],
            "breaks": [asdict(b) for b in self.breaks],
            "calls": [asdict(c) for c in self.calls],
        }

    def to_json(self) -> str:
        return as_json(self)

    def to_csv(self) -> str:
        return as_csv(self)

    def to_markdown(self, language: str = "en") -> str:
        return as_markdown(self, language)

    def to_html(self, language: str = "en") -> str:
        return as_html(self, language)

    def __str__(self) -> str:
        return self.to_markdown()


INSIDE = {"supported", "partially supported"}


class Watch:
    """Collects graphs while a model is compiled."""

    def __init__(self):
        self.graphs: list[tuple[torch.fx.GraphModule, str]] = []

    def __call__(self, module, phase, number) -> None:
        self.graphs.append((module, phase))


def explain(backend, model):
    """A function of the model's arguments that runs it once, compiled, and gives a Report."""

    def run(*args, **kwargs) -> Report:
        watch = Watch()
        watched = functools.partial(backend.func, **{**backend.keywords, "observer": watch})
        return report_of(watch.graphs, _run(model, watched, args, kwargs))

    return run


def report_of(graphs, breaks) -> Report:
    """`graphs` as a Watch has them."""
    report = Report(_verdicts.profile() or "none", len(graphs), breaks=breaks)
    for number, (module, phase) in enumerate(graphs):
        report.calls += _calls(module, phase, number)
    nodes = {str(n.target): n for module, _ in graphs for n in module.graph.nodes}
    for call in report.unsupported():
        if call.target not in report.fixes:
            report.fixes[call.target] = _fix(nodes[call.target])
            report.repros[call.target] = _repro(call)
    return report


def _run(model, watched, args, kwargs) -> list[Break]:
    """Backward graphs are compiled too where the results can go backward."""
    from torch._functorch import config as aot

    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    torch._dynamo.utils.graph_break_reasons.clear()
    try:
        with aot.patch(force_non_lazy_backward_lowering=True):
            torch.compile(model, backend=watched)(*args, **kwargs)
        return breaks_seen()
    finally:
        torch._dynamo.reset()


def breaks_seen() -> list[Break]:
    """The graph breaks of this process, each with its line, as torch._dynamo.explain lists them.

    Dynamo counts some more, where it compiled nothing before the break.
    """
    utils = torch._dynamo.utils
    seen = {}
    for why in utils.graph_break_reasons:
        frame = why.user_stack[-1] if why.user_stack else None
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}" if frame else ""
        found = Break(_break(why.reason).reason, place)
        seen[found.reason, found.location] = found
    told = {found.reason for found in seen.values()}
    counted = [_break(text) for text in utils.counters["graph_break"]]
    return [*seen.values(), *(b for b in counted if b.reason not in told)]


def _break(text: str) -> Break:
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    place = next((line for line in lines if line.startswith("File ")), "")
    return Break(lines[0] if lines else "", place)


def _calls(module: torch.fx.GraphModule, phase: str, number: int) -> list[Call]:
    from torchair._graph_dump import user_line
    from torchair.fx_summary import arguments_printed, printed

    made = []
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        verdict = _verdicts.of_call(node)
        made.append(
            Call(
                target=str(node.target),
                status=_verdicts.ENGLISH[verdict.status],
                reason=_reason(verdict),
                graph=number,
                phase=phase,
                module=_module_path(node),
                location=user_line(node) or "",
                inputs=arguments_printed(node),
                outputs=printed(node.meta.get("val")),
                seconds=_measured(node),
                dtypes=_dtypes(node),
            )
        )
    return made


def _dtypes(node) -> str:
    """As eager mode judges them; the tables are about its operators."""
    from torch_npu import _dtype_verdicts

    if not isinstance(node.target, torch._ops.OpOverload) or not _verdicts.profile():
        return ""
    gaps = _dtype_verdicts.gaps(node.target.name(), _dtype_verdicts.input_dtypes([node]))
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in gaps.items() if names)


def _module_path(node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values() if entry and entry[0]]
    return paths[-1].removeprefix("L['self'].").replace("._modules", "") if paths else ""


def _reason(verdict: _verdicts.Verdict) -> str:
    where = _verdicts.chip() or "this engine"
    general = {
        _verdicts.SUPPORTED: "",
        _verdicts.PARTIAL: f"OP101: the converter of {where} refuses some calls",
        _verdicts.NOT_IMPLEMENTED: f"OP201: known to {where}, without an implementation",
        _verdicts.NOT_REGISTERED: f"OP202: {where} does not know this operator",
        _verdicts.UNKNOWN: f"OP301: {where} says nothing about this target",
    }[verdict.status]
    return f"{general[:5]}: {verdict.reason}" if verdict.reason else general


_times: dict[tuple[str, str], float] = {}


def _measured(node) -> float:
    """Seconds of one call on tensors of these sizes, run eagerly; the same call is timed once."""
    from torchair import _probe
    from torchair.fx_summary import arguments_printed, values_of

    if not isinstance(node.target, torch._ops.OpOverload):
        return 0.0
    key = (str(node.target), arguments_printed(node))
    if key not in _times:
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        try:
            with unset_fake_temporarily(), torch.no_grad():
                args, kwargs = _probe.made(
                    (values_of(tuple(node.args)), values_of(dict(node.kwargs)))
                )
                node.target(*args, **kwargs)
                torch.npu.synchronize()
                start = time.perf_counter()
                node.target(*args, **kwargs)
                torch.npu.synchronize()
                _times[key] = time.perf_counter() - start
        except Exception:  # made-up operands may be refused: then there is no time
            _times[key] = 0.0
    return _times[key]


def _fix(node) -> str:
    """A decomposition of PyTorch's that was tried and is taken throughout, or a way of one's own."""
    if _decomposition_helps(node):
        return (
            "pass custom_decompositions=torch._decomp.get_decompositions("
            f"[torch.ops.{node.target}]) to get_npu_backend"
        )
    return f"write a converter: @torchair.register_fx_node_ge_converter(torch.ops.{node.target})"


def _decomposition_helps(node) -> bool:
    """Whether the call, decomposed, consists of calls that go into graphs."""
    from torch._decomp import decomposition_table
    from torch.fx.experimental.proxy_tensor import make_fx

    from torchair.fx_summary import values_of

    decomposition = decomposition_table.get(node.target)
    if decomposition is None:
        return False
    flat, tree = pytree.tree_flatten((values_of(tuple(node.args)), values_of(dict(node.kwargs))))
    places = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor)]

    def call(*tensors):
        given = list(flat)
        for i, tensor in zip(places, tensors):
            given[i] = tensor
        args, kwargs = pytree.tree_unflatten(given, tree)
        return decomposition(*args, **kwargs)

    try:
        traced = make_fx(call)(*[flat[i] for i in places])
        made = [n for n in traced.graph.nodes if n.op == "call_function"]
        statuses = {_verdicts.ENGLISH[_verdicts.of_call(n).status] for n in made}
    except Exception:  # it was tried, and does not work
        return False
    return statuses <= INSIDE


def _repro(call: Call) -> str:
    return f"# {call.location}\n# {call.target}{call.inputs} -> {call.outputs}"
