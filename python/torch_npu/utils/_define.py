# SPDX-License-Identifier: Apache-2.0
"""Operators of Ascend's for those who look them up without Python: C++, and files of torch.jit.save."""

import torch

from torch_npu import _C

__all__ = ["define_operators"]


def define_operators(*names: str) -> int:
    """Makes PyTorch's dispatcher know operators, all of them or those named, and says how many.

    torch.ops.npu and torch.ops.atb define an operator when Python first asks for it, which keeps the
    import quick. Before torch.jit.load of a file that calls such operators, and before C++ looks them
    up (Dispatcher::findSchema), call this once.
    """
    wanted = {n.rpartition("::")[2] for n in names}
    defined = set()
    for namespace in ("npu", "atb"):
        for name in _C._custom_operators(namespace):
            if not wanted or name in wanted:
                getattr(getattr(torch.ops, namespace), name)
                defined.add(name)
    unknown = sorted(wanted - defined)
    if unknown:
        raise ValueError(f"define_operators: Ascend has no operator {', '.join(unknown)}")
    return len(defined)
