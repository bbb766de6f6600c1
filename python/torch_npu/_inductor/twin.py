# SPDX-License-Identifier: Apache-2.0
"""The CPU twin of a graph of AOTAutograd: the same nodes with CPU tensors instead of npu ones.

The graph itself is not changed. Nodes that must run on the device, or whose operator is the
device's own, are replaced (stay.py, attention.py).
"""

import copy
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves, tree_map

_CPU = torch.device("cpu")


class NoTwin(Exception):
    """The graph cannot be computed by host code; says why."""


@dataclass
class Twin:
    module: torch.fx.GraphModule
    inputs: list
    places: list[int]  # of the inputs that are npu tensors in the graph
    wants_npu: list[bool]  # per result: it is an npu tensor in the graph
    npu_alone: bool  # all inputs and results are, and there are no more results than the graph's
    device: int  # index of the graph's npu device


def of(module: torch.fx.GraphModule, example_inputs) -> Twin:
    from . import attention, stay

    device = _device_of(module, example_inputs)
    wants = [_is_npu(value) for value in _values_of_results(module)]
    made = _copied(module)
    attention.rewrite(made)
    stay.replace(made, device)
    _to_cpu(made)
    stay.order(made)
    made.graph.lint()
    made.recompile()
    places = [i for i, value in enumerate(example_inputs) if _is_npu(value)]
    (output,) = (node for node in made.graph.nodes if node.op == "output")
    alone = len(places) == len(example_inputs) and all(wants) and len(output.args[0]) == len(wants)
    inputs = [as_cpu(value) for value in example_inputs]
    return Twin(made, inputs, places, wants, alone, device)


def _is_npu(value) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


def _values_of_results(module) -> list:
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    (results,) = output.args
    return [r.meta.get("val") if isinstance(r, torch.fx.Node) else r for r in results]


def _device_of(module, inputs) -> int:
    values = tree_leaves([list(inputs), [n.meta.get("val") for n in module.graph.nodes]])
    indices = {value.device.index or 0 for value in values if _is_npu(value)}
    if len(indices) > 1:
        raise NoTwin(f"it uses {len(indices)} devices")
    return indices.pop() if indices else torch.npu.current_device()


def _copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A module with a graph of its own; nested ones (of cond, for instance) too."""
    made = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    made.meta = copy.copy(module.meta)
    for node in made.graph.nodes:
        if node.op == "get_attr":
            value = getattr(made, node.target, None)
            if isinstance(value, torch.fx.GraphModule):
                setattr(made, node.target, _copied(value))
    return made


def _to_cpu(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        for key in ("val", "eager_input_vals"):
            if key in node.meta:
                node.meta[key] = tree_map(as_cpu, node.meta[key])
        node.args = torch.fx.node.map_aggregate(node.args, _cpu_device)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _cpu_device)
        if node.op == "get_attr":
            value = getattr(module, node.target, None)
            if isinstance(value, torch.fx.GraphModule):
                _to_cpu(value)
            elif _is_npu(value):
                with torch._subclasses.fake_tensor.unset_fake_temporarily():
                    setattr(module, node.target, value.detach().cpu())


def _cpu_device(value):
    return _CPU if isinstance(value, torch.device) and value.type == "npu" else value


def as_cpu(value):
    """The fake of an npu tensor as one of a CPU tensor that shares its storage: passes look at
    storages to see which tensors are views of others."""
    from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

    if not _is_npu(value):
        return value
    if not isinstance(value, FakeTensor):
        raise NoTwin("it holds a tensor that is not traced")
    mode = value.fake_mode
    with torch.no_grad(), in_kernel_invocation_manager(mode):
        meta = torch.ops.aten.alias.default(value)
    return FakeTensor(mode, meta, _CPU)
