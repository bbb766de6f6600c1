# SPDX-License-Identifier: Apache-2.0
"""One function of a module as a graph of its own: traced whole, written as JSON, bound to a module.

Inputs of the graph are parameters and buffers by name, then the caller's tensors. What it writes it
writes in place, by copy_ nodes at its end.
"""

import json
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from torchair import _file_rules, _graph_json, _trace_outputs
from torchair._file_rules import BadFile, NotWritable

FORMAT, VERSION = "torchair-graph", 1


class Mismatch(ValueError):
    """A call does not fit the trace; says in what."""


class SharedMemory(ValueError):
    """An input that the graph writes shares memory with another one; says which."""


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
        try:
            for spec in (self.in_spec, self.out_spec):
                _file_rules.check_tree(spec)
        except BadFile as why:
            raise NotWritable(f"the arguments or results hold {why}") from None
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
        made = Trace(
            _graph_json.read(data["graph"]),
            [Input(**row) for row in data["inputs"]],
            **{k: data[k] for k in ("in_spec", "out_spec", "leaves", "results", "ranges")},
        )
        _check_form(made)
        return made
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"{type(error).__name__}: {error}") from None


def _check_form(made: Trace) -> None:
    """BadFile unless every call and result of the graph has its place."""
    nodes = list(made.module.graph.nodes)
    if sum(n.op == "placeholder" for n in nodes) != len(made.inputs):
        raise BadFile("the graph has other inputs")
    found = nodes[-1].args[0]
    listed = isinstance(found, list) and all(isinstance(n, torch.fx.Node) for n in found)
    _require(listed, "results")
    _require(len(made.leaves) == _file_rules.check_tree(made.in_spec), "arguments")
    _require(len(made.results) == _file_rules.check_tree(made.out_spec), "results")
    for known in made.inputs:
        _check_input(known)
    callers = [i for i, known in enumerate(made.inputs) if known.name is None]
    given = [row["input"] for row in made.leaves if "input" in row]
    _require(all(map(_is_count, given)) and sorted(given) == callers, "arguments")
    counts = {"input": len(made.inputs), "result": len(found)}
    for row in (*made.leaves, *made.results):
        ((kind, value),) = row.items()
        constant = value is None or isinstance(value, (bool, int, float, str))
        _require(constant if kind == "value" else _is_count(value, counts[kind]), "values")
    for symbol, (least, most) in made.ranges.items():
        plain = symbol.isidentifier() and _is_count(least)
        _require(plain and (most is None or _is_count(most)), "ranges")


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise BadFile(f"the {what} have another form")


def _is_count(value, limit: int = 2**63) -> bool:
    return type(value) is int and 0 <= value < limit


def _check_input(known: Input) -> None:
    _file_rules.dtype(known.dtype)
    torch.device(known.device)
    _require(known.name is None or isinstance(known.name, str), "parameters")
    sizes = all(_is_count(s) or (isinstance(s, str) and s.isidentifier()) for s in known.shape)
    strides = known.stride is None or (
        len(known.stride) == len(known.shape) and all(map(_is_count, known.stride))
    )
    _require(type(known.shape) is list and sizes and strides, "sizes")


class _Call(torch.nn.Module):
    """A method as a module's forward, which is what torch.export takes."""

    def __init__(self, owner: torch.nn.Module, function):
        super().__init__()
        self.owner = owner
        self._function = function

    def forward(self, args, kwargs):
        return self._function(*args, **kwargs)


def apart(values, others=()):
    """The arguments of a call, with tensors of their own where two share memory, or one with
    `others`: a trace is made for tensors that share none, and reads no value."""
    flat, spec = pytree.tree_flatten(values)
    taken = [t for t in others if isinstance(t, torch.Tensor)]
    for i, value in enumerate(flat):
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        if any(_overlap(value, other) for other in taken):
            strides = value.stride()
            flat[i] = torch.empty_strided(
                value.shape, strides, dtype=value.dtype, device=value.device
            )
        else:
            taken.append(value)
    return pytree.tree_unflatten(flat, spec)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """By addresses: two storages may be of one memory. Empty tensors share nothing."""
    if a.layout != torch.strided or b.layout != torch.strided or a.device != b.device:
        return False
    (begin, end), (other_begin, other_end) = _span(a), _span(b)
    return begin < other_end and other_begin < end


def _span(t: torch.Tensor) -> tuple[int, int]:
    begin = t.data_ptr()
    if not t.numel():
        return begin, begin
    last = sum((size - 1) * step for size, step in zip(t.shape, t.stride()))
    return begin, begin + (last + 1) * t.element_size()


def trace(
    owner: torch.nn.Module, function, args: tuple, kwargs: dict, dynamic: bool,
    decompositions=None, held=(),
) -> Trace:  # fmt: skip
    """`function(*args, **kwargs)` as a graph; parameters and buffers are `owner`'s. Tensors that are
    `held` are inputs called #0, #1 and so on."""
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
        program = program.run_decompositions(decompositions or {})
    return _read(program, args, kwargs, held)


def _read(program, args, kwargs, held) -> Trace:
    module = program.graph_module
    for node in list(module.graph.nodes):
        if node.op == "call_module" and not node.users:  # checks of sizes, made again by check()
            module.graph.erase_node(node)
    signature = program.graph_signature
    inputs, places = _inputs(program, signature, held)
    leaves = _leaves(signature, places, pytree.tree_leaves((args, kwargs)))
    results = _trace_outputs.write_in_place(module, signature, places)
    for node in [n for n in module.graph.nodes if n.op == "placeholder" and n.name not in places]:
        module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
    return Trace(
        module,
        inputs,
        _tree_text(pytree.tree_structure((args, kwargs))),
        _tree_text(program.call_spec.out_spec),
        leaves,
        results,
        _ranges(program, inputs),
    )


def _tree_text(spec) -> str:
    text = pytree.treespec_dumps(spec)
    if pytree.treespec_loads(text) != spec:
        raise NotWritable("a container among the arguments or results has no form in a file")
    return text


def _inputs(program, signature, held):
    """(inputs, {placeholder: place}). Tensors written in the code become the graph's own; those
    that are attributes of the module are read from it at every call."""
    from torch.export.graph_signature import InputKind, TensorArgument

    module, inputs, places = program.graph_module, [], {}
    nodes = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
    for spec in signature.input_specs:
        node = nodes[spec.arg.name]
        literal = spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ, InputKind.TOKEN)
        number = _number_of(program.constants.get(spec.target), held) if literal else None
        if number is not None:
            places[node.name] = len(inputs)
            inputs.append(_described(f"#{number}", node.meta["val"]))
        elif literal and not str(spec.target).startswith("owner."):
            _constant(program, node, spec)
        elif isinstance(spec.arg, TensorArgument):
            of_caller = spec.kind is InputKind.USER_INPUT
            name = None if of_caller else spec.target.removeprefix("owner.")
            places[node.name] = len(inputs)
            inputs.append(_described(name, node.meta["val"]))
        elif node.users:
            raise NotWritable(f"argument {node.name} is no tensor and is read by the graph")
    return inputs, places


def _number_of(value, held: list) -> int | None:
    """Its number among the held tensors: torch.export keeps views of constants."""
    if not isinstance(value, torch.Tensor):
        return None
    return next((i for i, tensor in enumerate(held) if _is_same(tensor, value)), None)


def _is_same(one, other: torch.Tensor) -> bool:
    if one is other or not isinstance(one, torch.Tensor):
        return one is other
    strided = one.layout == other.layout == torch.strided
    alike = (one.dtype, one.device, one.shape) == (other.dtype, other.device, other.shape)
    return (
        strided and alike and one.stride() == other.stride()
        and one.numel() > 0 and one.data_ptr() == other.data_ptr()
    )  # fmt: skip


def _constant(program, node, spec) -> None:
    value = program.constants.get(spec.target)
    if not isinstance(value, torch.Tensor):
        raise NotWritable(f"the graph holds {spec.target}, which is not a tensor")
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

    def __init__(self, made: Trace, owner: torch.nn.Module, compile_graph, held=()):
        """`compile_graph(graph module, fake inputs)` gives what is called with a list. `held`: how
        the held tensors are found at a call (inference/_key.py)."""
        self._trace = made
        self._in_spec = pytree.treespec_loads(made.in_spec)
        self._out_spec = pytree.treespec_loads(made.out_spec)
        self._named = [i.name for i in made.inputs if i.name is not None]
        self._owner, self._held = owner, held
        self._compile = compile_graph
        self._run = None
        self._written = _written(made.module)
        self._rows = [
            (i, _file_rules.dtype(i.dtype)) for i in made.inputs
        ]  # fmt: skip

    def __call__(self, args: tuple, kwargs: dict):
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise Mismatch("the arguments have another structure")
        inputs = self._gathered(flat)
        self._check(inputs)
        if self._run is None:
            self._run = self._compile(self._trace.module, _fakes(self._trace, inputs))
        with torch._C._DisableAutocast():  # what autocast does is part of the trace
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
                inputs[i] = self._tensor(known.name)
        return inputs

    def _tensor(self, name: str):
        if not name.startswith("#"):
            return member(self._owner, name)
        try:
            return self._held[int(name[1:])].now(self._owner)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise Mismatch(f"a tensor that the method reads is gone ({error})") from None

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
        for i in self._written:
            for j, other in enumerate(inputs):
                if i != j and _overlap(inputs[i], other):
                    names = [self._trace.inputs[k].name or f"argument {k}" for k in (i, j)]
                    raise SharedMemory(f"{names[0]} is written and shares memory with {names[1]}")


def _written(module: torch.fx.GraphModule) -> list[int]:
    """Inputs that the graph writes: by the copy_ nodes at its end."""
    places = {n: i for i, n in enumerate(n for n in module.graph.nodes if n.op == "placeholder")}
    targets = (n.args[0] for n in module.graph.nodes if n.target is torch.ops.aten.copy_.default)
    return [places[target] for target in targets if target in places]


def member(owner: torch.nn.Module, name: str):
    """A parameter or buffer, or a tensor that is an attribute. The name may come out of a file:
    it is looked up among what modules hold, and runs no property."""
    *path, last = name.split(".")
    for part in path:
        owner = owner._modules.get(part)
        if owner is None:
            raise Mismatch(f"there is no {name}")
    for held in (owner._parameters, owner._buffers, vars(owner)):
        if last in held:
            return held[last]
    raise Mismatch(f"there is no {name}")


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
    from torch._dispatch.python import enable_python_dispatcher
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
    with enable_python_dispatcher():  # meta functions of programs get symbols
        FakeTensorProp(made.module, mode).propagate_dont_convert_inputs(*fakes)
    return fakes


def dumps(made: Trace) -> str:
    return json.dumps(made.to_json(), indent=1, allow_nan=False)
