# SPDX-License-Identifier: Apache-2.0
"""One function of a module as a graph of its own: traced whole, written as JSON, bound to a module.

Inputs of the graph are parameters and buffers by name, then the caller's tensors. What it writes it
writes in place, by copy_ nodes at its end.
"""

import json
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from torchair import _graph_json
from torchair._graph_json import BadFile, NotWritable

FORMAT, VERSION = "torchair-graph", 1


class Mismatch(ValueError):
    """A call does not fit the trace; says in what."""


@dataclass
class Input:
    """One input of the graph. `name` is a parameter's or buffer's; None for the caller's."""

    name: str | None
    dtype: str
    device: str
    shape: list  # numbers, or names of symbols
    stride: list | None  # None: any


@dataclass
class Trace:
    module: torch.fx.GraphModule
    inputs: list[Input]
    in_spec: str  # of (args, kwargs)
    out_spec: str
    leaves: list  # per leaf of the call: {"input": i} or a constant
    results: list  # per leaf of the result: {"result": i}, {"input": i} or a constant
    ranges: dict  # symbol -> [least, most]

    def to_json(self) -> dict:
        return {
            "format": FORMAT,
            "version": VERSION,
            "torch": torch.__version__,
            "graph": _graph_json.write(self.module),
            "inputs": [vars(i) for i in self.inputs],
            **{k: getattr(self, k) for k in ("in_spec", "out_spec", "leaves", "results", "ranges")},
        }


def from_json(data) -> Trace:
    try:
        if data["format"] != FORMAT or data["version"] != VERSION:
            raise BadFile(f"format {data['format']!r} {data['version']!r}")
        if data["torch"] != torch.__version__:
            raise BadFile(f"written with torch {data['torch']}, this is {torch.__version__}")
        return Trace(
            _graph_json.read(data["graph"]),
            [Input(**row) for row in data["inputs"]],
            **{k: data[k] for k in ("in_spec", "out_spec", "leaves", "results", "ranges")},
        )
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"{type(error).__name__}: {error}") from None


class _Call(torch.nn.Module):
    """A method as a module's forward, which is what torch.export takes."""

    def __init__(self, owner: torch.nn.Module, function):
        super().__init__()
        self.owner = owner
        self._function = function

    def forward(self, args, kwargs):
        return self._function(*args, **kwargs)


def trace(owner: torch.nn.Module, function, args: tuple, kwargs: dict, dynamic: bool) -> Trace:
    """`function(*args, **kwargs)` as a graph; parameters and buffers are `owner`'s."""
    call = _Call(owner, function)
    shapes = None
    if dynamic:
        auto = torch.export.Dim.AUTO
        shapes = pytree.tree_map(
            # Strides of others are part of the trace, and they hold sizes.
            lambda t: (
                [auto] * t.dim() if isinstance(t, torch.Tensor) and t.is_contiguous() else None
            ),
            (args, kwargs),
        )
    with torch.no_grad():
        program = torch.export.export(call, (args, kwargs), dynamic_shapes=shapes, strict=False)
        program = program.run_decompositions({})
    return _read(program, args, kwargs)


def _read(program, args, kwargs) -> Trace:
    module = program.graph_module
    for node in list(module.graph.nodes):
        if node.op == "call_module" and not node.users:  # checks of sizes, made again by check()
            module.graph.erase_node(node)
    signature = program.graph_signature
    inputs, places = _inputs(program, signature)
    leaves = _leaves(signature, places, pytree.tree_leaves((args, kwargs)))
    results = _write_in_place(module, signature, places)
    for node in [n for n in module.graph.nodes if n.op == "placeholder" and n.name not in places]:
        module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
    return Trace(
        module,
        inputs,
        pytree.treespec_dumps(pytree.tree_structure((args, kwargs))),
        pytree.treespec_dumps(program.call_spec.out_spec),
        leaves,
        results,
        _ranges(program, inputs),
    )


def _inputs(program, signature):
    """(inputs, {placeholder: place}). Tensors written in the code become the graph's own; those
    that are attributes of the module are read from it at every call."""
    from torch.export.graph_signature import InputKind, TensorArgument

    module, inputs, places = program.graph_module, [], {}
    nodes = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
    for spec in signature.input_specs:
        node = nodes[spec.arg.name]
        literal = spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ, InputKind.TOKEN)
        if literal and not str(spec.target).startswith("owner."):
            _constant(program, node, spec)
        elif isinstance(spec.arg, TensorArgument):
            of_caller = spec.kind is InputKind.USER_INPUT
            name = None if of_caller else spec.target.removeprefix("owner.")
            places[node.name] = len(inputs)
            inputs.append(_described(name, node.meta["val"]))
        elif node.users:
            raise NotWritable(f"argument {node.name} is no tensor and is read by the graph")
    return inputs, places


def _constant(program, node, spec) -> None:
    value = program.constants.get(spec.target)
    if not isinstance(value, torch.Tensor):
        raise NotWritable(f"the graph holds {spec.target}, which is no tensor")
    module, name = program.graph_module, f"constant_{node.name}"
    module.register_buffer(name, value, persistent=False)
    with module.graph.inserting_after(node):
        new = module.graph.get_attr(name)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)


def _described(name: str | None, value: torch.Tensor) -> Input:
    shape = [_size(s) for s in value.shape]
    fixed = all(isinstance(s, int) for s in shape)
    stride = [int(s) for s in value.stride()] if fixed else None
    return Input(name, str(value.dtype), str(value.device), shape, stride)


def _size(size) -> int | str:
    if isinstance(size, int):
        return size
    text = str(size)
    if text.isdigit():  # a symbol that the trace found to be this number
        return int(text)
    if not text.isidentifier():
        raise NotWritable(f"a size is {text}, which is more than one symbol")
    return text


def _leaves(signature, places, given) -> list:
    """What each leaf of the call is: an input of the graph, or a value that must be the same."""
    from torch.export.graph_signature import InputKind

    specs = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    leaves = []
    for spec, value in zip(specs, given, strict=True):
        if spec.arg.name in places:
            leaves.append({"input": places[spec.arg.name]})
        elif value is None or isinstance(value, (bool, int, float, str)):
            leaves.append({"value": value})
        else:
            raise NotWritable(f"an argument is a {type(value).__name__}")
    return leaves


def _write_in_place(module, signature, places) -> list:
    """Results that only update an input become copy_ nodes. What the caller's results are."""
    from torch.export.graph_signature import OutputKind

    names = {s.target: s.arg.name for s in signature.input_specs if s.target is not None}
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    nodes = {n.name: n for n in module.graph.nodes}
    kept, results = [], []
    for spec, value in zip(signature.output_specs, output.args[0], strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            if not isinstance(value, torch.fx.Node):
                results.append({"value": value})
            elif value.op == "placeholder":
                results.append({"input": places[value.name]})
            else:
                results.append({"result": len(kept)})
                kept.append(value)
            continue
        if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            raise NotWritable(f"a result is a {spec.kind.name}")
        target = nodes[names.get(spec.target, spec.target)]
        with module.graph.inserting_before(output):
            copied = module.graph.call_function(torch.ops.aten.copy_.default, (target, value))
        copied.meta = dict(target.meta)
    output.args = (kept,)
    return results


def _ranges(program, inputs: list[Input]) -> dict:
    used = {s for i in inputs for s in i.shape if isinstance(s, str)}
    found = {}
    for symbol, limits in program.range_constraints.items():
        if str(symbol) in used:
            most = str(limits.upper)
            found[str(symbol)] = [int(limits.lower), int(most) if most.isdigit() else None]
    return found


class Bound:
    """A trace with a module's parameters: called as the function it was made of."""

    def __init__(self, made: Trace, owner: torch.nn.Module, compile_graph):
        """`compile_graph(graph module, fake inputs)` gives what is called with a list."""
        self._trace = made
        self._in_spec = pytree.treespec_loads(made.in_spec)
        self._out_spec = pytree.treespec_loads(made.out_spec)
        self._named = [i.name for i in made.inputs if i.name is not None]
        self._owner = owner
        self._compile = compile_graph
        self._run = None
        self._rows = [
            (i, getattr(torch, i.dtype.removeprefix("torch."))) for i in made.inputs
        ]  # fmt: skip

    def __call__(self, args: tuple, kwargs: dict):
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise Mismatch("the arguments have another structure")
        inputs = self._gathered(flat)
        self._check(inputs)
        if self._run is None:
            self._run = self._compile(self._trace.module, _fakes(self._trace, inputs))
        results = self._run(list(inputs))
        leaves = [_picked(row, inputs, results) for row in self._trace.results]
        return pytree.tree_unflatten(leaves, self._out_spec)

    def _gathered(self, flat: list) -> list:
        inputs: list = [None] * len(self._trace.inputs)
        for row, value in zip(self._trace.leaves, flat, strict=True):
            if "input" in row:
                inputs[row["input"]] = value
            elif type(value) is not type(row["value"]) or value != row["value"]:
                raise Mismatch(f"an argument is {value!r}, was {row['value']!r}")
        for i, known in enumerate(self._trace.inputs):
            if known.name is not None:
                inputs[i] = member(self._owner, known.name)
        return inputs

    def _check(self, inputs: list) -> None:
        symbols: dict[str, int] = {}
        for value, (known, dtype) in zip(inputs, self._rows):
            if not isinstance(value, torch.Tensor) or value.dtype != dtype:
                raise Mismatch(f"{known.name or 'an argument'} is no tensor of {known.dtype}")
            if value.device != torch.device(known.device):
                raise Mismatch(f"{known.name or 'an argument'} is on {value.device}")
            if not _fits(value, known, symbols, self._trace.ranges):
                raise Mismatch(
                    f"{known.name or 'an argument'} has sizes {tuple(value.shape)} and strides "
                    f"{value.stride()}, expected {known.shape}"
                )


def member(owner: torch.nn.Module, name: str):
    """A parameter or buffer, also one that is not in the state dict."""
    path, _, last = name.rpartition(".")
    return getattr(owner.get_submodule(path), last)


def _picked(row: dict, inputs: list, results: list):
    if "result" in row:
        return results[row["result"]]
    return inputs[row["input"]] if "input" in row else row["value"]


def _fits(value, known: Input, symbols: dict, ranges: dict) -> bool:
    if value.dim() != len(known.shape):
        return False
    for size, wanted in zip(value.shape, known.shape):
        if isinstance(wanted, int):
            if size != wanted:
                return False
        else:
            least, most = ranges.get(wanted, (0, None))
            if size < least or (most is not None and size > most):
                return False
            if symbols.setdefault(wanted, size) != size:
                return False
    if known.stride is None:
        return value.is_contiguous()
    return known.stride == list(value.stride())


def _fakes(made: Trace, inputs: list) -> list:
    """Fake inputs with symbols where the trace has them, and the graph's metadata made of them."""
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        ShapeEnv,
        StatelessSymbolicContext,
    )
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = []
    for i, (value, known) in enumerate(zip(inputs, made.inputs)):
        dims = [
            DimDynamic.STATIC if isinstance(s, int) else DimDynamic.DYNAMIC for s in known.shape
        ]
        context = StatelessSymbolicContext(dynamic_sizes=dims)
        source = ConstantSource(f"input_{i}")
        fakes.append(mode.from_tensor(value.detach(), symbolic_context=context, source=source))
    FakeTensorProp(made.module, mode).propagate_dont_convert_inputs(*fakes)
    return fakes


def dumps(made: Trace) -> str:
    return json.dumps(made.to_json(), indent=1, allow_nan=False)
