# SPDX-License-Identifier: Apache-2.0
"""An optimizer under amp: float32 masters in the place of low precision weights, skipped steps."""

from __future__ import annotations

import types

import torch
from torch import Tensor

from apex.amp._gradients import Stash, still_combined
from apex.amp._state import say, state


def prepare(optimizer: torch.optim.Optimizer) -> None:
    if hasattr(optimizer, "_amp_stash"):
        raise RuntimeError("amp.initialize: an optimizer was given that amp has already.")
    stash = optimizer._amp_stash = Stash()
    for group in optimizer.param_groups:
        _take(optimizer, group)
    # State of an optimizer that has run already gets the type of what it now belongs to.
    if optimizer.state:
        optimizer.load_state_dict(optimizer.state_dict())
    _patch_step(optimizer, stash)
    _patch_zero_grad(optimizer, stash)
    _patch_add_param_group(optimizer)


def _take(optimizer: torch.optim.Optimizer, group: dict) -> None:
    stash = optimizer._amp_stash
    for i, p in enumerate(group["params"]):
        if not p.requires_grad:
            continue
        if not state.choices.master_weights or p.dtype == torch.float32:
            stash.others.append(p)
            continue
        master = p.detach().float().requires_grad_()
        group["params"][i] = master
        stash.pairs.append((p, master))
        if p in optimizer.state:
            optimizer.state[master] = optimizer.state.pop(p)


def _patch_step(optimizer: torch.optim.Optimizer, stash: Stash) -> None:
    original = optimizer.step

    def step(self, closure=None):
        if closure is not None:
            raise RuntimeError(
                "amp: step(closure) is not possible, a closure computes an unscaled loss. Call "
                "backward inside amp.scale_loss, then step()."
            )
        overflowed, stash.overflowed = stash.overflowed, []
        dynamic = [(i, flag) for i, flag in overflowed if state.scalers[i].dynamic]
        _step_unless(self, original, dynamic)
        if stash.pairs:
            with torch.no_grad():
                torch._foreach_copy_([low for low, _ in stash.pairs], [m for _, m in stash.pairs])
            for _, master in stash.pairs:
                master.grad = None

    optimizer.step = types.MethodType(step, optimizer)


def _step_unless(optimizer, original, overflowed: list[tuple[int, Tensor]]) -> None:
    if not overflowed:
        original()
        return
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        # The kernel reads the flag itself, so the host does not wait for the device.
        optimizer.grad_scale = None
        optimizer.found_inf = torch.stack([flag for _, flag in overflowed]).amax()
        try:
            original()
        finally:
            del optimizer.grad_scale, optimizer.found_inf
        return
    wrong = [i for i, flag in overflowed if flag.item() != 0]
    if not wrong:
        original()
        return
    scale = state.scalers[wrong[0]].loss_scale()
    say(f"Gradient overflow: step skipped, the scale of loss {wrong[0]} is {scale} now.")


def _patch_zero_grad(optimizer: torch.optim.Optimizer, stash: Stash) -> None:
    def zero_grad(self, set_to_none: bool = True):
        if still_combined(stash):
            for whole in stash.combined:
                whole.zero_()
        else:
            for p in stash.trained():
                kept = None if set_to_none or p.grad is None else p.grad.detach().zero_()
                p.grad = kept
        for _, master in stash.pairs:
            master.grad = None
        stash.overflowed, stash.scaled = [], False

    optimizer.zero_grad = types.MethodType(zero_grad, optimizer)


def _patch_add_param_group(optimizer: torch.optim.Optimizer) -> None:
    original = optimizer.add_param_group

    def add_param_group(self, group: dict) -> None:
        original(group)
        _take(self, self.param_groups[-1])

    optimizer.add_param_group = types.MethodType(add_param_group, optimizer)
