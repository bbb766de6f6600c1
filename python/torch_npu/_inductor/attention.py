# SPDX-License-Identifier: Apache-2.0
"""Fused attention in a CPU twin: the device's operator becomes the CPU's, where nothing is drawn."""

import operator

import torch

_aten = torch.ops.aten
_FORWARD = _aten._scaled_dot_product_fused_attention_overrideable.default
_BACKWARD = _aten._scaled_dot_product_fused_attention_overrideable_backward.default
_CPU_FORWARD = _aten._scaled_dot_product_flash_attention_for_cpu.default
_CPU_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
# Tagged as if they drew: rewrite() makes them for a dropout of 0 only.
WITHOUT_DRAWS = (_CPU_FORWARD, _CPU_BACKWARD)
_OUT, _LOGSUMEXP, _SEED, _OFFSET = 0, 1, 6, 7  # results of the device's operator
_BIAS_GRADIENT = 3
_SAME_ARGUMENTS = ("grad_out", "query", "key", "value", "out", "logsumexp")


def rewrite(module: torch.fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.target is _FORWARD:
            _forward(module.graph, node)
        elif node.target is _BACKWARD:
            _backward(module.graph, node)


def _named(node, target) -> dict:
    """The node's arguments by name, defaults filled in."""
    arguments = target._schema.arguments
    given = {a.name: value for a, value in zip(arguments, node.args)} | dict(node.kwargs)
    return {a.name: given.get(a.name, a.default_value) for a in arguments}


def _is_the_cpus(named) -> bool:
    """The CPU's operator drops nothing and has one size for queries and values."""
    query, value = (named[n].meta["val"] for n in ("query", "value"))
    return named["dropout_p"] == 0 and query.shape[-1] == value.shape[-1]


def _forward(graph, node) -> None:
    named = _named(node, _FORWARD)
    readers = [(user, user.args[1]) for user in node.users]
    known = (_OUT, _LOGSUMEXP, _SEED, _OFFSET)
    if not _is_the_cpus(named) or any(item not in known for user, item in readers if user.users):
        return
    with graph.inserting_before(node):
        made = graph.call_function(
            _CPU_FORWARD,
            (named["query"], named["key"], named["value"], 0.0, named["is_causal"]),
            {"attn_mask": named["attn_bias"], "scale": named["scale"]},
        )
    _infer(made, node)
    for user, item in readers:
        with graph.inserting_before(user):
            if item in (_OUT, _LOGSUMEXP):
                new = graph.call_function(operator.getitem, (made, item))
                new.meta = {**user.meta, "val": made.meta["val"][item]}
            else:
                # Parts of a random state that are not read.
                new = graph.call_function(
                    _aten.full.default, ([], 0), {"dtype": torch.int64, "device": torch.device("cpu")}
                )  # fmt: skip
                new.meta = dict(user.meta)
        user.replace_all_uses_with(new)
        graph.erase_node(user)
    graph.erase_node(node)


def _backward(graph, node) -> None:
    named = _named(node, _BACKWARD)
    readers = [(user, user.args[1]) for user in node.users]
    if not _is_the_cpus(named) or named["grad_input_mask"][3]:
        return
    with graph.inserting_before(node):
        made = graph.call_function(
            _CPU_BACKWARD,
            (*(named[n] for n in _SAME_ARGUMENTS), 0.0, named["is_causal"]),
            {"attn_mask": named["attn_bias"], "scale": named["scale"]},
        )
    _infer(made, node)
    for user, item in readers:
        if item == _BIAS_GRADIENT:  # not requested, so it is None
            for reader in list(user.users):
                reader.args = torch.fx.map_arg(reader.args, lambda n, u=user: None if n is u else n)
            continue
        with graph.inserting_before(user):
            new = graph.call_function(operator.getitem, (made, item))
        new.meta = {**user.meta, "val": made.meta["val"][item]}
        user.replace_all_uses_with(new)
    for user, _ in readers:
        graph.erase_node(user)
    graph.erase_node(node)


def _infer(made, like) -> None:
    """Metadata of the new node, by its operator's own rule."""
    made.meta = {k: v for k, v in like.meta.items() if k != "eager_input_vals"}
    args, kwargs = torch.fx.map_arg((made.args, made.kwargs), lambda n: n.meta["val"])
    made.meta["val"] = made.target(*args, **kwargs)
