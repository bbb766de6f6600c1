# SPDX-License-Identifier: Apache-2.0
"""The optimization levels O0 to O3, and what a caller may change of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Choices:
    opt_level: str
    cast_model_type: torch.dtype | None = None  # None: weights stay as they are
    patch_torch_functions: bool = False
    keep_batchnorm_fp32: bool | None = None
    master_weights: bool | None = None
    loss_scale: float | str = 1.0
    combine_grad: bool = False
    combine_ddp: bool = False
    ddp_replica_count: int = 4


LEVELS = {
    "O0": Choices("O0", torch.float32, master_weights=False),
    "O1": Choices("O1", patch_torch_functions=True, loss_scale="dynamic"),
    "O2": Choices(
        "O2", torch.float16, keep_batchnorm_fp32=True, master_weights=True, loss_scale="dynamic"
    ),
    "O3": Choices("O3", torch.float16, keep_batchnorm_fp32=False, master_weights=False),
}


def choose(opt_level: str, changes: dict) -> Choices:
    if opt_level not in LEVELS:
        raise RuntimeError(
            f"amp.initialize: opt_level is {opt_level!r}; one of 'O0', 'O1', 'O2', 'O3' is expected "
            "(the letter O, not the number zero)."
        )
    asked = {name: value for name, value in changes.items() if value is not None}
    if "keep_batchnorm_fp32" in asked:
        asked["keep_batchnorm_fp32"] = _truth("keep_batchnorm_fp32", asked["keep_batchnorm_fp32"])
    if "loss_scale" in asked and asked["loss_scale"] != "dynamic":
        asked["loss_scale"] = _number("loss_scale", asked["loss_scale"])
    made = replace(LEVELS[opt_level], **asked)
    _check(made)
    return made


def _check(made: Choices) -> None:
    if made.patch_torch_functions and made.cast_model_type not in (None, torch.float32):
        raise RuntimeError(
            "amp.initialize: O1 casts inside of functions and leaves weights alone; "
            "cast_model_type is for O0, O2 and O3."
        )
    if made.opt_level == "O1" and (made.keep_batchnorm_fp32 is not None or made.master_weights):
        raise RuntimeError(
            "amp.initialize: with O1 weights stay float32, so keep_batchnorm_fp32 and "
            "master_weights have nothing to say; leave them out."
        )
    if made.combine_ddp and not made.combine_grad:
        raise RuntimeError("amp.initialize: combine_ddp=True needs combine_grad=True.")


def _truth(name: str, value: object) -> bool:
    """Programs hand over what their command line said."""
    if value in (True, "True"):
        return True
    if value in (False, "False"):
        return False
    raise RuntimeError(f"amp.initialize: {name} is {value!r}; True or False is expected.")


def _number(name: str, value: object) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if number > 0:
        return number
    raise RuntimeError(
        f"amp.initialize: {name} is {value!r}; 'dynamic' or a positive number is expected."
    )
