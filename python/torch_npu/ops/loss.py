# SPDX-License-Identifier: Apache-2.0
"""Losses."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import require, unsupported, wide


@implements("npu_cross_entropy_loss")
def npu_cross_entropy_loss(
    input, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0,
    lse_square_scale_for_zloss=0.0, return_zloss=False,
):  # fmt: skip
    name = "npu_cross_entropy_loss"
    require(
        reduction in ("mean", "sum", "none"),
        f"{name}: reduction is {reduction}; allowed: mean, sum, none.",
        "VALUE",
    )
    require(input.dim() == 2, f"{name}: input has {input.dim()} dimensions; allowed: 2.")
    require(
        0 <= label_smoothing < 1,
        f"{name}: label_smoothing is {label_smoothing}; allowed: 0 <= x < 1.",
        "VALUE",
    )
    if return_zloss or lse_square_scale_for_zloss != 0:
        unsupported(
            f"{name}: zloss is not supported, as on Ascend: leave lse_square_scale_for_zloss and return_zloss."
        )
    log_prob = torch.log_softmax(wide(input), -1)
    loss = F.cross_entropy(
        wide(input), target.to(torch.int64), None if weight is None else wide(weight),
        reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing,
    )  # fmt: skip
    loss = loss if reduction == "none" else loss.reshape(1)
    empty = input.new_empty(0)
    return loss.to(input.dtype), log_prob.detach().to(input.dtype), empty, empty.float()


@implements("npu_softmax_cross_entropy_with_logits")
def npu_softmax_cross_entropy_with_logits(input, labels):
    name = "npu_softmax_cross_entropy_with_logits"
    require(
        input.shape == labels.shape and input.dim() == 2,
        f"{name}: input has shape {list(input.shape)} and labels {list(labels.shape)}; both must be the same (rows, classes).",
    )
    return -(wide(labels).detach() * torch.log_softmax(wide(input), -1)).sum(-1).to(input.dtype)


@implements("npu_softmax_cross_entropy_with_logits_backward")
def npu_softmax_cross_entropy_with_logits_backward(grad, input, labels):
    p, y = torch.softmax(wide(input), -1), wide(labels)
    return (wide(grad).unsqueeze(-1) * (p * y.sum(-1, keepdim=True) - y)).to(input.dtype)


@implements("l1_loss_backward")
def l1_loss_backward(grad_output, input, target, reduction):
    require(
        reduction in (0, 1, 2),
        f"l1_loss_backward: reduction is {reduction}; allowed: 0, 1, 2.",
        "VALUE",
    )
    grad = torch.sign(input - target) * grad_output
    return grad / input.numel() if reduction == 1 else grad
