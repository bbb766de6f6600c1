# SPDX-License-Identifier: Apache-2.0
"""What amp.initialize decided, for the rest of the process; saving and loading the loss scales."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from apex.amp._levels import Choices
from apex.amp._loss_scaler import LossScaler

DEVICE = "npu"


class State:
    choices: Choices | None = None
    scalers: list[LossScaler] = []
    verbosity = 1
    choices_enabled = True


state = State()


def say(text: str) -> None:
    if state.verbosity > 0 and not _another_rank():
        print(text, flush=True)


def _another_rank() -> bool:
    dist = torch.distributed
    return dist.is_available() and dist.is_initialized() and dist.get_rank() != 0


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """What the optimizer updates: float32 copies with O2, for gradient clipping."""
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict(destination: dict | None = None) -> dict:
    """The loss scales, one entry per loss."""
    saved = {} if destination is None else destination
    for i, scaler in enumerate(state.scalers):
        saved[f"loss_scaler{i}"] = {
            "loss_scale": scaler.loss_scale(),
            "unskipped": scaler.unskipped(),
        }
    return saved


def load_state_dict(saved: dict) -> None:
    entries = [key for key in saved if key.startswith("loss_scaler")]
    if len(entries) != len(state.scalers):
        say(
            f"amp: {len(entries)} loss scales were saved, there are {len(state.scalers)} losses now."
        )
    unknown = sorted(set(saved) - set(entries))
    if unknown:
        raise RuntimeError(f"amp.load_state_dict: no entries of amp: {', '.join(unknown)}")
    for key in entries:
        number = key.removeprefix("loss_scaler")
        if not number.isdigit():
            raise RuntimeError(f"amp.load_state_dict: no entry of amp: {key}")
        if int(number) < len(state.scalers):
            state.scalers[int(number)].load(saved[key]["loss_scale"], saved[key]["unskipped"])
