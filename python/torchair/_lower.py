# SPDX-License-Identifier: Apache-2.0
"""An FX graph of ATen operators as a program of torch_npu._C, which runs it without Python.

Operators become calls, arithmetic on sizes becomes integer instructions; what is neither (higher
order operators, Python functions) becomes a call back into Python: an island.
"""

import operator

import torch
from torch.fx import GraphModule, Node, map_arg

_ARITH = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv",
    operator.mod: "mod", operator.neg: "neg", operator.eq: "eq", operator.ne: "ne",
    operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge",
}  # fmt: skip


class _Lowering:
    def __init__(self, module: GraphModule):
        from torch_npu import _C

        self.program = _C._TracedGraph()
        self._module = module
        self._places: dict[Node, object] = {}
        self._islands: set[Node] = set()

    def lower(self):
        for node in self._module.graph.nodes:
            getattr(self, node.op)(node)
        return self.program

    # One method per opcode of FX.

    def placeholder(self, node: Node) -> None:
        self._places[node] = self.program.input()

    def get_attr(self, node: Node) -> None:
        value = self._module
        for name in node.target.split("."):
            value = getattr(value, name)
        self._places[node] = value

    def call_module(self, node: Node) -> None:
        module = self._module.get_submodule(node.target)
        self._island(node, module)

    def call_method(self, node: Node) -> None:
        self._island(node, operator.methodcaller, method=node.target)

    def call_function(self, node: Node) -> None:
        if node.target is operator.getitem:
            self._item(node)
        elif isinstance(node.target, torch._ops.OpOverload):
            self._operator(node)
        elif node.target in _ARITH and all(map(_is_int, (*node.args, node))):
            self._places[node] = self.program.arith(_ARITH[node.target], self._here(node.args))
        else:
            self._island(node, node.target)

    def output(self, node: Node) -> None:
        (results,) = node.args
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        self.program.finish([self._one(r) for r in results])

    # Nodes.

    def _operator(self, node: Node) -> None:
        if is_users_python(node.target):
            self._island(node, node.target)
            return
        schema = node.target._schema
        args = map_arg(node.args, self._places.__getitem__)
        kwargs = map_arg(node.kwargs, self._places.__getitem__)
        try:
            self._places[node] = self.program.call(
                schema.name, schema.overload_name, tuple(args), dict(kwargs)
            )
        except (RuntimeError, TypeError, ValueError):
            # An argument that is only a Python object.
            self._island(node, node.target)

    def _item(self, node: Node) -> None:
        source, index = node.args
        held = self._places[source]
        if isinstance(held, (tuple, list)):
            self._places[node] = held[index]
        elif source in self._islands or not isinstance(index, int):
            self._island(node, operator.getitem)
        else:
            self._places[node] = self.program.item(held, index)

    def _island(self, node: Node, function, method: str | None = None) -> None:
        """`function(*args, **kwargs)` in Python, at every run."""
        inputs = list(node.all_input_nodes)
        places = [self._places[n] for n in inputs]
        if any(isinstance(place, tuple) for place in places):
            places, inputs = self._unpacked(inputs)
        moving = [n for n in inputs if _is_place(self._places_of(n))]
        still = {n: self._places_of(n) for n in inputs if n not in moving}

        def run(*values):
            known = dict(zip(moving, values)) | still
            look = lambda n: self._packed(n, known)  # noqa: E731
            args, kwargs = map_arg(node.args, look), map_arg(node.kwargs, look)
            if method is not None:
                return getattr(args[0], method)(*args[1:], **kwargs)
            return function(*args, **kwargs)

        name = getattr(function, "__name__", str(function)) if method is None else method
        self._places[node] = self.program.host(name, run, [self._places_of(n) for n in moving])
        self._islands.add(node)

    # A node with several results is a tuple of places; an island gets them one by one.

    def _unpacked(self, nodes):
        flat = []
        for node in nodes:
            place = self._places[node]
            if isinstance(place, tuple):
                flat += [(node, i) for i in range(len(place))]
            else:
                flat.append(node)
        return None, flat

    def _places_of(self, key):
        return self._places[key[0]][key[1]] if isinstance(key, tuple) else self._places[key]

    def _packed(self, node: Node, known: dict):
        if node in known:
            return known[node]
        return tuple(known[node, i] for i in range(len(self._places[node])))

    def _here(self, args) -> list:
        return [self._one(a) for a in args]

    def _one(self, value):
        if not isinstance(value, Node):
            return value
        place = self._places[value]
        if isinstance(place, tuple):
            raise ValueError(f"graph: {value.name} has several results and is used as one")
        return place


def is_users_python(target) -> bool:
    """Whether a program wrote the operator's kernel in Python: it may look at more than its
    arguments, so that a recording of what it once did is not enough."""
    if target.namespace in ("aten", "prims", "npu"):
        return False
    name = target._schema.name.partition("::")[2]
    if f"{target.namespace}::{name}" in torch._library.custom_ops.OPDEFS:
        return True
    start = f"{target.namespace}/{name}"
    return any(
        key.startswith((f"{start}/", f"{start}.")) and not key.endswith("/Meta")
        for key in torch.library._impls
    )


def _is_place(value) -> bool:
    from torch_npu import _C

    return isinstance(value, _C._GraphPlace)


def _is_int(value) -> bool:
    if isinstance(value, Node):
        value = value.meta.get("val")
        return isinstance(value, (int, torch.SymInt, torch.SymBool))
    return isinstance(value, int)


def lower(module: GraphModule):
    """The program of `module`'s graph. Constants of the graph stay those of `module`."""
    return _Lowering(module).lower()
