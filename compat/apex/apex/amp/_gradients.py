# SPDX-License-Identifier: Apache-2.0
"""Gradients between backward and step: scaled ones become unscaled ones of what the optimizer updates."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from apex.amp._loss_scaler import LossScaler
from apex.amp._state import state


class Stash:
    """What amp keeps of an optimizer.

    `pairs`: low precision parameters of the model with the float32 master that the optimizer has in
    their place. `others`: parameters the optimizer updates themselves.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.others: list[Tensor] = []
        self.kept: dict[Tensor, Tensor] = {}
        self.scaled = False
        self.overflowed: list[tuple[int, Tensor]] = []
        self.combined: list[Tensor] = []

    def trained(self) -> list[Tensor]:
        """What backward fills the gradients of."""
        return [low for low, _ in self.pairs] + self.others


def before_backward(stash: Stash) -> None:
    """Unscaled gradients of earlier losses are put aside; those of this one come in scaled."""
    if stash.scaled:
        return
    stash.kept = {p: p.grad for p in stash.others if p.grad is not None}
    if still_combined(stash):
        stash.kept = {p: grad.clone() for p, grad in stash.kept.items()}
        for whole in stash.combined:
            whole.zero_()
        return
    for p in stash.trained():
        p.grad = None


@torch.no_grad()
def unscale(optimizer: torch.optim.Optimizer, scaler: LossScaler, found: Tensor) -> None:
    """`found` gets 1 where a gradient is infinite or no number."""
    stash = optimizer._amp_stash
    stash.scaled = False
    if state.choices.combine_grad:
        _combine(stash)
    masters = [(low, m) for low, m in stash.pairs if low.grad is not None]
    wide = [low.grad.float() for low, _ in masters]
    grads = wide + [p.grad for p in stash.others if p.grad is not None]
    _unscale_lists(grads, scaler, found)
    for (_, master), grad in zip(masters, wide, strict=True):
        master.grad = grad if master.grad is None else master.grad.add_(grad)
    for p, before in stash.kept.items():
        p.grad = before if p.grad is None else p.grad.add_(before)
    stash.kept = {}


def _unscale_lists(grads: list[Tensor], scaler: LossScaler, found: Tensor) -> None:
    alike: dict[tuple, list[Tensor]] = defaultdict(list)
    for grad in grads:
        if grad.is_sparse:
            raise RuntimeError("amp: sparse gradients cannot be unscaled; use dense ones.")
        alike[(grad.device, grad.dtype)].append(grad)
    for (device, _), group in alike.items():
        flag = torch.zeros((), dtype=torch.float32, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(group, flag, scaler.inverse(device))
        found.copy_(torch.maximum(found, flag.to(found.device, non_blocking=True)))


def still_combined(stash: Stash) -> bool:
    """Whether the gradients lie where they were put; not after a program has set one."""
    if not stash.combined:
        return False
    from torch_npu.utils import is_combined_tensor_valid

    groups = _by_type(stash)
    return len(groups) == len(stash.combined) and all(
        is_combined_tensor_valid(whole, group)
        for whole, group in zip(stash.combined, groups, strict=True)
    )


def _by_type(stash: Stash) -> list[list[Tensor]]:
    alike: dict[tuple, list[Tensor]] = defaultdict(list)
    for p in stash.trained():
        if p.grad is not None:
            alike[(p.grad.device, p.grad.dtype)].append(p.grad)
    return list(alike.values())


def _combine(stash: Stash) -> None:
    """The gradients lie one behind the other in one tensor per type, and are summed over ranks."""
    from torch_npu.utils import npu_combine_tensors

    if not still_combined(stash):
        stash.combined = [npu_combine_tensors(group) for group in _by_type(stash)]
    if state.choices.combine_ddp:
        for whole in stash.combined:
            torch.distributed.all_reduce(whole)
            whole.div_(state.choices.ddp_replica_count)
