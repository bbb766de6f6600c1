# SPDX-License-Identifier: Apache-2.0
"""The profile's verdicts on dtypes of calls in a traced graph, as in eager mode."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree


def input_dtypes(nodes: list[torch.fx.Node]) -> list[torch.dtype]:
    """Of the tensors that these nodes, which are one call of the program, get from outside, in order."""
    found: dict[torch.fx.Node, torch.dtype] = {}
    for node in nodes:
        for given in pytree.tree_leaves((node.args, node.kwargs)):
            value = given.meta.get("val") if isinstance(given, torch.fx.Node) else None
            if isinstance(value, torch.Tensor) and given not in nodes:
                found.setdefault(given, value.dtype)
    return list(found.values())


def gaps(overload: str, dtypes: list[torch.dtype]) -> dict[str, list[str]]:
    """{"refused": [...], "unknown": [...]} of a call ("aten::mm") with tensors of these dtypes."""
    from torch_npu import _C

    known = _C._dtypes_of(overload)
    judged = [d for i, d in enumerate(dtypes) if i == 0 or d.is_floating_point or d.is_complex]
    names = dict.fromkeys(str(d).removeprefix("torch.") for d in judged)
    if known is None:
        return {"refused": [], "unknown": []}
    return {
        "refused": [n for n in names if n in known["refused"]],
        "unknown": [n for n in names if n not in known["refused"] and n not in known["native"]],
    }
