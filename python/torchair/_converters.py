# SPDX-License-Identifier: Apache-2.0
"""Users' own converters: a function that replaces an operator of a graph by other operators.

It gets the operator's arguments and calls PyTorch's operators in its place; the operators it calls are
traced into the graph. `meta_outputs`, where it has such a parameter, holds the results' fakes.
"""

import inspect
from dataclasses import dataclass

_registered: dict[object, "Converter"] = {}


@dataclass
class Support:
    """A sample call, for tests of a converter."""

    args: tuple
    kwargs: dict

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


class Converter:
    def __init__(self, op, function):
        self.op = op
        self.function = function
        self.supported_cases: list[Support] = []
        self._wants_outputs = "meta_outputs" in inspect.signature(function).parameters

    def __call__(self, *args, meta_outputs=None, **kwargs):
        if self._wants_outputs:
            kwargs["meta_outputs"] = meta_outputs
        return self.function(*args, **kwargs)


def register_fx_node_ge_converter(aten_op):
    """Decorates the converter of `aten_op` (an overload like torch.ops.my.op.default)."""
    import torch

    op = aten_op
    if (
        op is not None
        and not isinstance(op, (torch._ops.OpOverload, torch._ops.HigherOrderOperator))
        and not callable(op)
    ):
        raise TypeError(
            f"register_fx_node_ge_converter: expected an operator overload such as "
            f"torch.ops.aten.add.Tensor, but got {op!r}"
        )
    if isinstance(op, torch._ops.OpOverloadPacket):
        raise TypeError(
            f"register_fx_node_ge_converter: {op} has several overloads: name one, such as "
            f"{op}.{op.overloads()[0]}"
        )

    def register(function):
        converter = Converter(op, function)
        if op is None:
            return converter
        if op in _registered:
            raise ValueError(
                f"register_fx_node_ge_converter: {op} has a converter already: "
                f"{_registered[op].function.__qualname__}. Call unregister first."
            )
        _registered[op] = converter
        return converter

    return register


def unregister(op) -> None:
    _registered.pop(op, None)


def declare_supported(cases: list[Support]):
    """Attaches sample calls to a converter; stands above register_fx_node_ge_converter."""
    import torch

    for case in cases:
        if any(isinstance(a, torch.Tensor) for a in case.args):
            raise TypeError("declare_supported: a case holds a tensor; describe it instead")

    def declare(converter):
        converter.supported_cases.extend(cases)
        return converter

    return declare


def find(target) -> Converter | None:
    try:
        return _registered.get(target)
    except TypeError:  # not hashable
        return None


def expand(module) -> int:
    """Nodes of operators with a converter become what it calls. Traced with the nodes' fakes."""
    found = [n for n in module.graph.nodes if n.op == "call_function" and find(n.target)]
    for node in found:
        _replace(module, node, find(node.target))
    return len(found)


def _replace(module, node, converter: Converter) -> None:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    from torchair._results import refuse_others
    from torchair.ge._ge_graph import TensorSpec, described, on_device

    inputs = list(node.all_input_nodes)
    fakes = [n.meta["val"] for n in inputs]
    wanted = node.meta.get("val")
    specs = pytree.tree_map_only(torch.Tensor, TensorSpec, wanted)
    tensors = [t for t in pytree.tree_leaves((wanted, fakes)) if isinstance(t, torch.Tensor)]

    def body(*values):
        known = {n: described(value, i) for i, (n, value) in enumerate(zip(inputs, values))}
        look = known.__getitem__
        args = torch.fx.map_arg(node.args, look)
        kwargs = torch.fx.map_arg(node.kwargs, look)
        with on_device(tensors[0].device if tensors else torch.device("npu")):
            results = converter(*args, meta_outputs=specs, **kwargs)
        refuse_others(f"the converter of {node.target}", results, wanted)
        return results

    traced = make_fx(body)(*fakes)
    for constant in [n for n in traced.graph.nodes if n.op == "get_attr"]:
        name = f"_{node.name}_{constant.target}"
        setattr(module, name, getattr(traced, constant.target))
        constant.target = name
    with module.graph.inserting_before(node):
        places = [n for n in traced.graph.nodes if n.op == "placeholder"]
        result = module.graph.graph_copy(traced.graph, dict(zip(places, inputs)))
    if not isinstance(result, torch.fx.Node):
        _unpack(node, result)
    else:
        node.replace_all_uses_with(result)
    module.graph.erase_node(node)


def _unpack(node, results) -> None:
    """Several results: the nodes that take one of them apart give way."""
    for reader in list(node.users):
        reader.replace_all_uses_with(results[reader.args[1]])
        node.graph.erase_node(reader)
