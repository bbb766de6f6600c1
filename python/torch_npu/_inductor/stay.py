# SPDX-License-Identifier: Apache-2.0
"""Operators of a CPU twin that are called on the device: random ones and those of npu alone.

Each gets an operator of its own with the same schema, whose CPU kernel moves its arguments to the
device, calls the original there and brings the results back. Inductor calls operators that it has no code for.
"""

import functools
import operator

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from . import attention, twin

_NAMESPACE = "npu_stay"
_PLAIN, _SAVE, _REPLAY = "plain", "save", "replay"


def replace(module: torch.fx.GraphModule, device: int) -> None:
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            if node.op == "get_attr" and isinstance(
                getattr(module, node.target, None), torch.fx.GraphModule
            ):
                _refuse_inside(getattr(module, node.target))
            continue
        if (found := _what_stays(node)) is not None:
            form, target, args = found
            node.target = _twin_operator(target, form)
            # The first one is filled in by order().
            node.args = (None, device, *args)
            # What a custom operator was traced with says which strides it gets.
            traced = node.meta.pop("eager_input_vals", None)
            if traced is not None and form == _PLAIN:
                node.meta["eager_input_vals"] = ((None, device, *traced[0]), traced[1])
            if form != _PLAIN:
                _describe(module, node, target, form)


def _describe(module, node, target, form: str) -> None:
    """The partitioner makes these nodes without metadata, and one that saves a state has the
    operator's results as a tuple inside of its own; here they are side by side."""
    if form == _SAVE and len(target._schema.returns) > 1:
        for whole in [user for user in node.users if user.args[1] == 1]:
            for item in list(whole.users):
                item.args = (node, 1 + item.args[1])
            module.graph.erase_node(whole)
    values = tree_leaves([n.meta.get("val") for n in module.graph.nodes])
    mode = next(v.fake_mode for v in values if isinstance(v, FakeTensor))
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    with mode:
        node.meta["val"] = _fake(target, form, *args, **kwargs)
    if isinstance(node.meta["val"], tuple):
        for user in node.users:
            user.meta["val"] = node.meta["val"][user.args[1]]


def order(module: torch.fx.GraphModule) -> None:
    """Inductor may reorder calls. Random ones are called in the graph's order, and all of them:
    each gets a result of the one before, and the last one is a result of the graph."""
    last, unused = None, False
    for node in list(module.graph.nodes):
        if node.op == "call_function" and getattr(node.target, "_npu_draws", False):
            node.update_arg(0, last)
            unused |= not node.users
            last = _first_tensor(module, node)
    if last is not None and unused:
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        output.args = ([*output.args[0], last],)


def _first_tensor(module, node):
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return node
    place = next(i for i, v in enumerate(value) if isinstance(v, torch.Tensor))
    with module.graph.inserting_after(node):
        item = module.graph.call_function(operator.getitem, (node, place))
    item.meta["val"] = value[place]
    return item


def _what_stays(node):
    """(form, operator, arguments) of a node that is to run on the device."""
    from torch._prims import rng_prims

    target = node.target
    if target is rng_prims.run_and_save_rng_state:
        return (_SAVE, node.args[0], node.args[1:]) if _draws_on_npu(node) else None
    if target is rng_prims.run_with_rng_state:
        state, op, *args = node.args
        return (_REPLAY, op, (state, *args)) if _draws_on_npu(node) else None
    if isinstance(target, torch._ops.OpOverload):
        return (_PLAIN, target, node.args) if _stays(node) else None
    _refuse_mutation_without_cpu_kernel(node)
    return None


def _draws_on_npu(node) -> bool:
    device = node.kwargs.get("device")
    if device is not None:
        return torch.device(device).type == "npu"
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    return any(isinstance(v, torch.Tensor) and v.device.type == "npu" for v in tree_leaves(values))


def _stays(node) -> bool:
    target = node.target
    if target in attention.WITHOUT_DRAWS:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or target.namespace == "npu":
        return _draws_on_npu(node)
    return not _has_cpu_kernel(target)


def _has_cpu_kernel(target) -> bool:
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(target.name(), "CPU")


def _refuse_mutation_without_cpu_kernel(node) -> None:
    """An operator that writes its arguments comes inside a node that names it."""
    named = node.args[0] if node.args else None
    if isinstance(named, torch._ops.OpOverload) and not _has_cpu_kernel(named):
        raise twin.NoTwin(f"{named} writes its arguments and has no CPU kernel")


def _refuse_inside(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if node.op == "call_function" and _what_stays(node) is not None:
            raise twin.NoTwin(f"a branch calls {node.target}, which stays on the device")


@functools.cache
def _library():
    return torch.library.Library(_NAMESPACE, "DEF")


@functools.cache
def _twin_operator(target, form: str):
    if target._schema.is_mutable:
        raise twin.NoTwin(f"{target} writes its arguments")
    name = f"{form}_{target.name().replace('::', '_').replace('.', '_')}"
    _library().define(_schema(target, form, name))
    # Not for CPU alone: a call without tensors has no device to be found by.
    kernel = functools.partial(_kernel, target, form)
    _library().impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(
        f"{_NAMESPACE}::{name}", functools.partial(_fake, target, form), lib=_library()
    )
    made = getattr(getattr(torch.ops, _NAMESPACE), name).default
    made._npu_draws = torch.Tag.nondeterministic_seeded in target.tags
    return made


def _schema(target, form: str, name: str) -> str:
    _, _, rest = str(target._schema).partition("(")
    arguments, _, returns = rest.rpartition(" -> ")
    leading = "Tensor? npu_after, int npu_index, " + (
        "Tensor npu_state, " if form == _REPLAY else ""
    )
    arguments = leading + arguments
    if arguments.endswith(", )"):
        arguments = arguments[:-3] + ")"
    if form == _SAVE:
        returns = f"(Tensor, {returns[1:] if returns.startswith('(') else returns + ')'}"
    return f"{name}({arguments} -> {returns}"


def _kernel(target, form: str, after, index: int, /, *args, **kwargs):
    where = torch.device("npu", index)
    state = None
    if form == _REPLAY:
        state, *args = args
    args, kwargs = tree_map(lambda value: _to_npu(value, where), (tuple(args), kwargs))
    before = torch.npu.get_rng_state(where) if form != _PLAIN else None
    if form == _REPLAY:
        torch.npu.set_rng_state(state, where)
    try:
        results = tree_map(_to_cpu, target(*args, **kwargs))
    finally:
        if form == _REPLAY:
            torch.npu.set_rng_state(before, where)
    if form == _SAVE:
        return (before, *results) if isinstance(results, tuple) else (before, results)
    return results


def _fake(target, form: str, after, index: int, /, *args, **kwargs):
    if form == _REPLAY:
        args = args[1:]
    results = target(*args, **kwargs)
    if form == _SAVE:
        state = torch.empty(_state_bytes(index), dtype=torch.uint8)
        return (state, *results) if isinstance(results, tuple) else (state, results)
    return results


@functools.cache
def _state_bytes(device: int) -> int:
    with torch._subclasses.fake_tensor.unset_fake_temporarily():
        return torch.npu.get_rng_state(device).numel()


def _to_npu(value, where):
    if isinstance(value, torch.Tensor):
        return value.to(where)
    return where if isinstance(value, torch.device) else value


def _to_cpu(value):
    return value.cpu() if isinstance(value, torch.Tensor) else value
