# SPDX-License-Identifier: Apache-2.0
"""`with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`, and `amp.disable_casts()`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from apex.amp import _gradients
from apex.amp._state import DEVICE, state


@contextlib.contextmanager
def scale_loss(
    loss: torch.Tensor,
    optimizers: torch.optim.Optimizer | list[torch.optim.Optimizer],
    loss_id: int = 0,
    model: torch.nn.Module | None = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[torch.Tensor]:
    """Gives the scaled loss; afterwards the optimizers' gradients are unscaled and checked.

    `delay_unscale=True` leaves them scaled, for backward passes whose gradients are added up: only
    the last one of a step is without it. `model` and `delay_overflow_check` are there for programs
    that pass them.
    """
    if state.choices is None:
        raise RuntimeError(
            "amp.scale_loss: call amp.initialize(model, optimizer, ...) first, also when "
            "enabled=False."
        )
    if not state.choices_enabled:
        yield loss
        return
    given = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers)
    for optimizer in given:
        if not hasattr(optimizer, "_amp_stash"):
            raise RuntimeError(
                f"amp.scale_loss: this {type(optimizer).__name__} was not given to amp.initialize."
            )
    if not 0 <= loss_id < len(state.scalers):
        raise RuntimeError(
            f"amp.scale_loss: loss_id={loss_id}, but amp.initialize was told "
            f"num_losses={len(state.scalers)}."
        )
    scaler = state.scalers[loss_id]
    for optimizer in given:
        _gradients.before_backward(optimizer._amp_stash)
    with torch.autocast(DEVICE, enabled=False):
        yield scaler.scale(loss)
    if delay_unscale:
        for optimizer in given:
            optimizer._amp_stash.scaled = True
        return
    found = torch.zeros((), dtype=torch.float32, device=loss.device)
    for optimizer in given:
        _gradients.unscale(optimizer, scaler, found)
    scaler.update(found)
    for optimizer in given:
        optimizer._amp_stash.overflowed.append((loss_id, found))


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Inside, functions compute in the types they are given (O1)."""
    with torch.autocast(DEVICE, enabled=False):
        yield
