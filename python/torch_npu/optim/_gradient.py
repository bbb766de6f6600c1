# SPDX-License-Identifier: Apache-2.0
"""SGD, RMSprop (PyTorch's and TensorFlow's), Adadelta."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_npu.optim._base import NpuFusedOptimizerBase, check_range


class NpuFusedSGD(NpuFusedOptimizerBase, torch.optim.SGD):
    """torch.optim.SGD, one call for all parameters."""

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False):
        torch.optim.SGD.__init__(
            self, params, lr, momentum, dampening, weight_decay, nesterov, fused=True
        )

    step = torch.optim.SGD.step


class NpuFusedRMSprop(NpuFusedOptimizerBase, torch.optim.RMSprop):
    """torch.optim.RMSprop, each of its operations one call for all parameters."""

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
    ):
        torch.optim.RMSprop.__init__(
            self, params, lr, alpha, eps, weight_decay, momentum, centered, foreach=True
        )

    step = torch.optim.RMSprop.step


class NpuFusedAdadelta(NpuFusedOptimizerBase, torch.optim.Adadelta):
    """torch.optim.Adadelta, each of its operations one call for all parameters."""

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0):
        torch.optim.Adadelta.__init__(self, params, lr, rho, eps, weight_decay, foreach=True)

    step = torch.optim.Adadelta.step


class NpuFusedRMSpropTF(NpuFusedOptimizerBase):
    """RMSprop as TensorFlow has it: epsilon under the root, averages that start at one, and the
    learning rate inside the momentum."""

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.9,
        eps=1e-10,
        weight_decay=0,
        momentum=0.0,
        centered=False,
        decoupled_decay=False,
        lr_in_momentum=True,
    ):
        check_range("lr", lr, 0)
        check_range("eps", eps, 0)
        check_range("momentum", momentum, 0)
        check_range("weight_decay", weight_decay, 0)
        check_range("alpha", alpha, 0)
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                alpha=alpha,
                eps=eps,
                centered=centered,
                weight_decay=weight_decay,
                decoupled_decay=decoupled_decay,
                lr_in_momentum=lr_in_momentum,
            ),
        )

    def _start(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = {"step": 0, "square_avg": torch.ones_like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = torch.zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = torch.zeros_like(param)
        return state

    def _update(self, group, params, grads, states):
        lr, rest = group["lr"], 1 - group["alpha"]
        for state in states:
            state["step"] += 1
        if group["weight_decay"] != 0:
            if group["decoupled_decay"]:
                torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
            else:
                grads = torch._foreach_add(grads, params, alpha=group["weight_decay"])
        squares = [state["square_avg"] for state in states]
        torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), rest)
        if group["centered"]:
            means = [state["grad_avg"] for state in states]
            torch._foreach_lerp_(means, grads, rest)
            under = torch._foreach_addcmul(squares, means, means, -1)
            torch._foreach_add_(under, group["eps"])
        else:
            under = torch._foreach_add(squares, group["eps"])
        torch._foreach_sqrt_(under)
        if group["momentum"] == 0:
            torch._foreach_addcdiv_(params, grads, under, -lr)
            return
        buffers = [state["momentum_buffer"] for state in states]
        torch._foreach_mul_(buffers, group["momentum"])
        inside = group["lr_in_momentum"]
        torch._foreach_addcdiv_(buffers, grads, under, lr if inside else 1)
        torch._foreach_add_(params, buffers, alpha=-1 if inside else -lr)
