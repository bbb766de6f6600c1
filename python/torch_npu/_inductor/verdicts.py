# SPDX-License-Identifier: Apache-2.0
"""Which operators of a compiled graph would leave the imitated chip: those that were traced.

Inductor takes operators apart before it generates code, and the code calls none of them. The
verdict is about the operators of the program, as in eager mode (NPU_FALLBACK, fallback_stats()).
"""

import torch

from torch_npu import _dtype_verdicts

# Eager mode calls the device's own kernel inside of an operator that profiles list.
_LISTED_AS = {
    "aten::_scaled_dot_product_fused_attention_overrideable": "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": "aten::scaled_dot_product_attention",
}


def _calls(module: torch.fx.GraphModule) -> dict[tuple, list[torch.fx.Node]]:
    """The nodes of each call of the program, by its overload, line and number."""
    calls: dict[tuple, list[torch.fx.Node]] = {}
    for node in module.graph.nodes:
        traced = node.meta.get("original_aten") or node.target
        if node.op == "call_function" and isinstance(traced, torch._ops.OpOverload):
            key = traced.name(), node.meta.get("stack_trace"), node.meta.get("seq_nr")
            calls.setdefault(key, []).append(node)
    return calls


def dtype_gaps(module: torch.fx.GraphModule) -> list[tuple[str, list[torch.dtype]]]:
    """The calls with dtypes that the chip refuses, or of which the tables say nothing."""
    from torch_npu import _C

    if _C._profile_name() == "none":
        return []
    found = []
    for (name, *_), nodes in _calls(module).items():
        dtypes = _dtype_verdicts.input_dtypes(nodes)
        if any(_dtype_verdicts.gaps(name, dtypes).values()):
            found.append((name, dtypes))
    return found


def falling(module: torch.fx.GraphModule) -> list[str]:
    """The overloads that fall back, once for each line of the program that calls one."""
    from torch_npu import _C

    if _C._profile_name() == "none":
        return []
    calls = _calls(module)
    verdicts = {name: _falls_back(name) for name in {name for name, *_ in calls}}
    return [name for name, *_ in calls if verdicts[name]]


def _falls_back(name: str) -> bool:
    from torch_npu import _C, _packs

    if name in _packs.overloads():
        return False
    listed = _LISTED_AS.get(name, name)
    rows = _C._explain_operator(listed)
    return any(row["falls_back"] for row in rows if row["overload"] == listed)
