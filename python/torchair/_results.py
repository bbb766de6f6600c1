# SPDX-License-Identifier: Apache-2.0
"""Whether a replacement of a part of a graph gives the same kind of results."""

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree


def refuse_others(what: str, given, wanted) -> None:
    """ValueError unless `given` and `wanted` have as many leaves, of the same sizes, dtype and
    device. Sizes that are not known to differ while a graph is traced count as the same."""
    given, wanted = pytree.tree_leaves(given), pytree.tree_leaves(wanted)
    if len(given) != len(wanted):
        raise ValueError(f"{what}: expected {len(wanted)} results, but got {len(given)}")
    for i, (new, old) in enumerate(zip(given, wanted)):
        if not _alike(new, old):
            raise ValueError(
                f"{what}: result {i}: expected {_described(old)}, but got {_described(new)}"
            )


def _alike(new, old) -> bool:
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor):
        return isinstance(new, torch.Tensor) == isinstance(old, torch.Tensor)
    if (new.dtype, new.device, new.dim()) != (old.dtype, old.device, old.dim()):
        return False
    return not any(statically_known_true(a != b) for a, b in zip(new.shape, old.shape))


def _described(value) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{value.dtype}{list(value.shape)} on {value.device}"
