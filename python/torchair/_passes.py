# SPDX-License-Identifier: Apache-2.0
"""Passes over FX graphs, between the report and the program. The module itself is not changed."""

import copy
import inspect

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_leaves

from torchair import _converters


def run(
    module: torch.fx.GraphModule, example_inputs, config, patterns=None
) -> torch.fx.GraphModule:
    """`patterns`: the replacements that programs registered (_patterns.Patterns)."""
    before, after = config.post_grad_custom_pre_pass.raw, config.post_grad_custom_post_pass.raw
    # Its Python code is generated on the first call or read: programs are made from the graph.
    made = _LazyGraphModule(module, copy.deepcopy(module.graph))
    made.meta = copy.copy(module.meta)
    if before is not None:
        before(made, example_inputs, config)
    _clean(made, config)
    # Before converters: a pattern may hold an operator that has one.
    if patterns is not None and config.experimental_config.pattern_fusion_pass:
        patterns.apply(made)
    if _converters.expand(made):
        _clean(made, config)
    if not config.debug.aclgraph.disable_reinplace_input_mutated_ops_pass:
        reinplace(made)
    if after is not None:
        after(made, example_inputs, config)
    made.graph.lint()
    made.recompile()
    return made


def _clean(module, config) -> None:
    remove_dead(module)
    if config.experimental_config.remove_noop_ops:
        remove_noops(module)


def remove_dead(module) -> int:
    """Removes nodes without readers, if that cannot be seen. Random ones stay: later numbers
    are then those of eager mode."""
    before = len(module.graph.nodes)
    module.graph.eliminate_dead_code(is_impure_node=_is_impure)
    return before - len(module.graph.nodes)


def _is_impure(node: torch.fx.Node) -> bool:
    if node.op in ("placeholder", "output") or node.is_impure():
        return True
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (
        torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable
    )


_aten = torch.ops.aten
_SAME = {_aten.detach.default, _aten.alias.default}


def remove_noops(module) -> int:
    """detach and alias between nodes: their readers read what they show. Where the result leaves
    the graph it stays, since callers tell tensors apart."""
    removed = 0
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in _SAME:
            readers = [user for user in node.users if user.op != "output"]
            removed += len(readers)
            for user in readers:
                user.replace_input_with(node, node.args[0])
            if not node.users:
                module.graph.erase_node(node)
    return removed


_SCATTERS = {
    _aten.slice_scatter.default, _aten.select_scatter.default, _aten.index_put.default,
    _aten.scatter.src, _aten.scatter_add.default, _aten.index_copy.default,
}  # fmt: skip


def reinplace(module) -> bool:
    """A cache that is updated through a copy of itself is updated in place: PyTorch's own pass.
    Runs where an input is written and something is scattered into a whole tensor."""
    functionalized = getattr(torch.ops.higher_order, "auto_functionalized_v2", None)
    targets = {node.target for node in module.graph.nodes if node.op == "call_function"}
    if functionalized not in targets and not (
        _SCATTERS & targets and _aten.copy_.default in targets
    ):
        return False
    from torch._inductor.fx_passes import post_grad, reinplace
    from torch._inductor.fx_utils import FakeTensorUpdater
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensor

    values = tree_leaves([n.meta.get("val") for n in module.graph.nodes])
    modes = {v.fake_mode for v in values if isinstance(v, FakeTensor)}
    # make_fx on real tensors gives every value a mode of its own: nothing to look storages up by.
    if len(modes) != 1:
        return False
    (mode,) = modes
    # Before torch 2.12 it was made from the graph.
    takes_graph = "graph" in inspect.signature(FakeTensorUpdater.__init__).parameters
    with V.set_fake_mode(mode):
        updater = FakeTensorUpdater(module.graph if takes_graph else module)
        reinplace.reinplace_inplaceable_ops(updater, module.graph)
        post_grad.decompose_auto_functionalized(module.graph)
    return True
