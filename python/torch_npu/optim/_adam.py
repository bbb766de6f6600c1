# SPDX-License-Identifier: Apache-2.0
"""Adam, AdamW and AdamP."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_npu.optim._base import NpuFusedOptimizerBase, check_range


class NpuFusedAdam(NpuFusedOptimizerBase, torch.optim.Adam):
    """torch.optim.Adam, one call for all parameters."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False
    ):
        torch.optim.Adam.__init__(
            self, params, lr, betas, eps, weight_decay, amsgrad=amsgrad, fused=True
        )

    step = torch.optim.Adam.step


class NpuFusedAdamW(NpuFusedOptimizerBase, torch.optim.AdamW):
    """torch.optim.AdamW, one call for all parameters."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False
    ):
        torch.optim.AdamW.__init__(
            self, params, lr, betas, eps, weight_decay, amsgrad=amsgrad, fused=True
        )

    step = torch.optim.AdamW.step


def _project(param: Tensor, grad: Tensor, update: Tensor, delta: float, ratio: float):
    """Takes the part along the weight out of an update that hardly changes its direction.

    Tried channel by channel, then for the whole tensor; returns the update and how much of the
    weight decay is left.
    """
    for rows in (param.shape[0], 1):
        weight, gradient = param.reshape(rows, -1), grad.reshape(rows, -1)
        length = weight.norm(dim=1, keepdim=True)
        cosine = (weight * gradient).sum(1) / (length.squeeze(1) * gradient.norm(dim=1) + 1e-8)
        if cosine.abs().max().item() < delta / weight.shape[1] ** 0.5:
            along = weight / (length + 1e-8)
            change = update.reshape(rows, -1)
            change = change - along * (along * change).sum(1, keepdim=True)
            return change.reshape(param.shape), ratio
    return update, 1.0


class NpuFusedAdamP(NpuFusedOptimizerBase):
    """AdamP: Adam that does not let momentum grow the norm of scale-invariant weights."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        delta=0.1,
        wd_ratio=0.1,
        nesterov=False,
    ):
        check_range("lr", lr, 0)
        check_range("eps", eps, 0)
        check_range("beta1", betas[0], 0, 1)
        check_range("beta2", betas[1], 0, 1)
        check_range("weight_decay", weight_decay, 0)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                delta=delta,
                wd_ratio=wd_ratio,
                nesterov=nesterov,
            ),
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        return {
            "step": 0,
            "exp_avg": torch.zeros_like(param),
            "exp_avg_sq": torch.zeros_like(param),
        }

    def _update(self, group, params, grads, states):
        beta1, beta2 = group["betas"]
        lr, eps = group["lr"], group["eps"]
        for state in states:
            state["step"] += 1
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(means, grads, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [(1 - beta2 ** s["step"]) ** 0.5 for s in states])
        torch._foreach_add_(roots, eps)
        if group["nesterov"]:
            updates = list(torch._foreach_mul(means, beta1))
            torch._foreach_add_(updates, grads, alpha=1 - beta1)
            torch._foreach_div_(updates, roots)
        else:
            updates = list(torch._foreach_div(means, roots))
        left = [1.0] * len(params)
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            if p.dim() > 1:
                updates[i], left[i] = _project(p, g, updates[i], group["delta"], group["wd_ratio"])
        if group["weight_decay"] > 0:
            torch._foreach_mul_(params, [1 - lr * group["weight_decay"] * x for x in left])
        torch._foreach_mul_(updates, [lr / (1 - beta1 ** s["step"]) for s in states])
        torch._foreach_sub_(params, updates)
