# SPDX-License-Identifier: Apache-2.0
"""LAMB and BertAdam: Adam without bias correction, for large batches and for BERT."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_npu.optim._base import NpuFusedOptimizerBase, check_range

# Weight norms above this do not make steps larger.
_LARGEST_NORM = 10.0


def _directions(group, betas, params, grads, states) -> list[Tensor]:
    """Where Adam would go, weight decay included; moves its averages on."""
    means = [state["exp_avg"] for state in states]
    squares = [state["exp_avg_sq"] for state in states]
    torch._foreach_lerp_(means, grads, 1 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, grads, grads, 1 - betas[1])
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, group["eps"] if "eps" in group else group["e"])
    updates = torch._foreach_div(means, roots)
    if group["weight_decay"] != 0:
        torch._foreach_add_(updates, params, alpha=group["weight_decay"])
    return updates


def _start(param: Tensor) -> dict[str, Any]:
    return {"step": 0, "exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param)}


class NpuFusedLamb(NpuFusedOptimizerBase):
    """LAMB: each tensor's step is scaled by the ratio of its norm to the step's."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0,
        adam=False,
        use_global_grad_norm=False,
    ):
        check_range("lr", lr, 0)
        check_range("eps", eps, 0)
        check_range("beta1", betas[0], 0, 1)
        check_range("beta2", betas[1], 0, 1)
        self.adam = adam
        self.use_global_grad_norm = use_global_grad_norm
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        if not self.use_global_grad_norm:
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.clip_grad_norm_fused_(1.0)
        super().step()
        return loss

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return _start(param)

    def _update(self, group, params, grads, states):
        for state in states:
            state["step"] += 1
        updates = _directions(group, group["betas"], params, grads, states)
        ratios = [1.0] * len(params)
        if not self.adam:
            norms = torch._foreach_norm([*params, *updates])
            lengths = torch.stack(norms).tolist()
            pairs = zip(lengths[: len(params)], lengths[len(params) :], strict=True)
            ratios = [min(w, _LARGEST_NORM) / u if w != 0 and u != 0 else 1.0 for w, u in pairs]
        torch._foreach_mul_(updates, [-group["lr"] * ratio for ratio in ratios])
        torch._foreach_add_(params, updates)


_SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "warmup_cosine": lambda x, warmup: 0.5 * (1.0 + math.cos(math.pi * x)),
    "warmup_constant": lambda x, warmup: 1.0,
    "warmup_linear": lambda x, warmup: max((x - 1.0) / (warmup - 1.0), 0.0),
    "warmup_poly": lambda x, warmup: (1.0 - x) ** 0.5,
}


class NpuFusedBertAdam(NpuFusedOptimizerBase):
    """BERT's Adam: no bias correction, weight decay in the step, a learning rate that warms up."""

    def __init__(
        self,
        params,
        lr=1e-3,
        warmup=-1,
        t_total=-1,
        schedule="warmup_linear",
        b1=0.9,
        b2=0.999,
        e=1e-6,
        weight_decay=0.01,
        max_grad_norm=1.0,
    ):
        check_range("lr", lr, 0)
        check_range("b1", b1, 0, 1)
        check_range("b2", b2, 0, 1)
        check_range("e", e, 0)
        if schedule not in _SCHEDULES:
            raise ValueError(f"Invalid schedule: {schedule}; there are {', '.join(_SCHEDULES)}")
        if not (0 <= warmup < 1 or warmup == -1):
            raise ValueError(f"Invalid warmup: {warmup}; it must be in [0, 1) or -1")
        super().__init__(
            params,
            dict(
                lr=lr,
                schedule=schedule,
                warmup=warmup,
                t_total=t_total,
                b1=b1,
                b2=b2,
                e=e,
                weight_decay=weight_decay,
                max_grad_norm=max_grad_norm,
            ),
        )

    def _rate(self, group: dict[str, Any], step: int) -> float:
        if group["t_total"] == -1:
            return group["lr"]
        done = step / group["t_total"]
        if done < group["warmup"]:
            return group["lr"] * done / group["warmup"]
        return group["lr"] * _SCHEDULES[group["schedule"]](done, group["warmup"])

    def get_lr(self) -> list[float]:
        """The learning rate of each parameter with a gradient; [0] before the first step."""
        rates = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not self.state[p]:
                    return [0]
                rates.append(self._rate(group, self.state[p]["step"]))
        return rates

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return _start(param)

    def _update(self, group, params, grads, states):
        if group["max_grad_norm"] > 0:
            lengths = torch.stack(torch._foreach_norm(grads)).tolist()
            scales = [min(group["max_grad_norm"] / (x + 1e-6), 1.0) for x in lengths]
            torch._foreach_mul_(grads, scales)
        updates = _directions(group, (group["b1"], group["b2"]), params, grads, states)
        torch._foreach_mul_(updates, [-self._rate(group, s["step"]) for s in states])
        torch._foreach_add_(params, updates)
        for state in states:
            state["step"] += 1
