# SPDX-License-Identifier: Apache-2.0
"""Graphs of ATen operators as JSON text and back. Reading runs no code of the file: operators and
functions are looked up by name, among those a graph may call (_file_rules.py).
"""

import base64
import builtins
import math
import operator

import torch
from torch.fx import Graph, GraphModule, Node

from torchair import _file_rules
from torchair._file_rules import BadFile, NotWritable

__all__ = ["BadFile", "NotWritable", "read", "write"]
VERSION = 1
# Python functions that arithmetic on sizes is made of.
_FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in {
        operator: "add sub mul truediv floordiv mod pow neg eq ne lt le gt ge and_ or_ not_ getitem",
        math: "ceil floor trunc sqrt",
        builtins: "max min abs round int float bool",
        torch: "sym_max sym_min sym_float sym_int sym_not sym_ite sym_sqrt sym_sum",
    }.items()
    for name in names.split()
    if hasattr(module, name)
}
_NAMES = {function: name for name, function in _FUNCTIONS.items()}
# kind -> {name: value} of the values that have a name in torch.
_TORCH = {
    kind: {str(v).removeprefix("torch."): v for v in vars(torch).values() if type(v) is type_}
    for kind, type_ in {
        "dtype": torch.dtype,
        "layout": torch.layout,
        "memory_format": torch.memory_format,
    }.items()
}
_KINDS = {type(next(iter(values.values()))): kind for kind, values in _TORCH.items()}


def write(module: GraphModule) -> dict:
    """The graph as what `json` takes. Tensors of the graph itself go in as bytes."""
    nodes, tensors = [], {}
    for node in module.graph.nodes:
        row = {"name": node.name, "op": node.op}
        if node.op == "call_function":
            row["target"] = _target_text(node.target)
        elif node.op == "get_attr":
            row["target"] = node.target
            tensors[node.target] = _tensor(_attribute(module, node.target))
        elif node.op == "placeholder":
            row["target"] = str(node.target)
        elif node.op != "output":
            raise NotWritable(f"node {node.name} is a {node.op}")
        row["args"] = _encode(node.args)
        if node.kwargs:
            row["kwargs"] = _encode(dict(node.kwargs))
        nodes.append(row)
    return {"version": VERSION, "nodes": nodes, "tensors": tensors}


def read(data: dict) -> GraphModule:
    """A module with the graph of `data`; BadFile when it is none."""
    try:
        if data["version"] != VERSION:
            raise BadFile(f"graph version {data['version']!r}, this is {VERSION}")
        root = torch.nn.Module()
        for name, value in data["tensors"].items():
            root.register_buffer(_file_rules.name(name), _to_tensor(value), persistent=False)
        graph, known = Graph(), {}
        for row in data["nodes"]:
            if row["name"] in known:
                raise BadFile(f"two nodes are called {row['name']!r}")
            known[row["name"]] = _read_node(graph, row, known, data["tensors"])
        if [row["op"] for row in data["nodes"]].count("output") != 1 or row["op"] != "output":
            raise BadFile("a graph has one output, at its end")
        graph.lint()
        return GraphModule(root, graph)
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"{type(error).__name__}: {error}") from None


def _read_node(graph: Graph, row: dict, known: dict, tensors: dict) -> Node:
    args = _decode(row["args"], known)
    kwargs = _decode(row.get("kwargs", {}), known)
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        raise BadFile(f"arguments of {row['name']!r}")
    op = row["op"]
    if op == "output":
        (results,) = args
        return graph.output(results)
    if op == "placeholder":
        return graph.placeholder(_file_rules.name(row["target"]))
    if op == "get_attr":
        if row["target"] not in tensors:
            raise BadFile(f"the graph holds no {row['target']!r}")
        return graph.create_node("get_attr", row["target"])
    if op == "call_function":
        target, name = _target(row["target"]), _file_rules.name(row["name"])
        # The graph becomes Python source, with these words as they are.
        kwargs = {_file_rules.name(key): value for key, value in kwargs.items()}
        _file_rules.check_arguments(target, args, kwargs)
        return graph.create_node(op, target, args, kwargs, name=name)
    raise BadFile(f"node {row['name']!r} is a {op!r}")


def _attribute(module, target: str):
    value = getattr(module, target, None) if target.isidentifier() else None
    if not isinstance(value, torch.Tensor):
        raise NotWritable(f"the graph holds {target}, which is not a tensor")
    return value


def _target_text(target) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    if target in _NAMES:
        return _NAMES[target]
    raise NotWritable(f"{target} is no operator")


def _target(text):
    found = _FUNCTIONS.get(text) if isinstance(text, str) else None
    return found if found is not None else _file_rules.operator(text)


# Values: JSON's own as they are, everything else as {kind: content}.


def _encode(value):
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [_encode(value.real), _encode(value.imag)]}
    if isinstance(value, list):
        return [_encode(v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(v) for v in value]}
    if isinstance(value, dict):
        return {"dict": {str(k): _encode(v) for k, v in value.items()}}
    if isinstance(value, slice):
        return {"slice": [_encode(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if type(value) in _KINDS:
        return {_KINDS[type(value)]: str(value).removeprefix("torch.")}
    raise NotWritable(f"an argument is a {type(value).__name__}")


def _decode(value, known: dict):
    if isinstance(value, list):
        return [_decode(v, known) for v in value]
    if not isinstance(value, dict):
        return value
    if not value:
        return {}
    ((kind, content),) = value.items()
    if kind == "node":
        return known[content]
    if kind in ("tuple", "slice"):
        parts = [_decode(v, known) for v in content]
        return tuple(parts) if kind == "tuple" else slice(*parts)
    if kind == "dict":
        return {k: _decode(v, known) for k, v in content.items()}
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(*(_decode(v, known) for v in content))
    if kind == "device":
        return torch.device(content)
    if kind in _TORCH and content in _TORCH[kind]:
        return _TORCH[kind][content]
    raise BadFile(f"a value of kind {kind!r}")


def _tensor(value: torch.Tensor) -> dict:
    data = value.detach().cpu().contiguous()
    raw = data.view(-1).view(torch.uint8) if data.numel() else torch.empty(0, dtype=torch.uint8)
    return {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "device": str(value.device),
        "bytes": base64.b64encode(raw.numpy().tobytes()).decode(),
    }


def _to_tensor(data: dict) -> torch.Tensor:
    dtype = _file_rules.dtype(data["dtype"])
    raw = bytearray(base64.b64decode(data["bytes"], validate=True))
    shape = [int(n) for n in data["shape"]]
    if min(shape, default=0) < 0 or len(raw) != math.prod(shape) * dtype.itemsize:
        raise BadFile("a tensor's bytes do not fit its shape")
    made = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return made.reshape(shape).to(data["device"])
