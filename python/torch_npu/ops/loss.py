# SPDX-License-Identifier: Apache-2.0
"""Losses."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, same_dtype, shapes, unsupported, wide


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


# ---- a linear layer and cross entropy over a vocabulary that ranks share ------------------


def _pack_bits(mask):
    """Eight flags a byte, the first in the lowest bit; the last byte is filled with ones."""
    mask = torch.cat([mask, mask.new_ones(-mask.size(0) % 8)]).unflatten(0, (-1, 8))
    return (mask.to(torch.int32) << torch.arange(8, device=mask.device)).sum(1).to(torch.uint8)


def _unpack_bits(packed, count: int):
    bits = packed.to(torch.int32)[:, None] >> torch.arange(8, device=packed.device)
    return (bits & 1).flatten()[:count].bool()


def _check_linear(name, input, weight) -> None:
    same_dtype(name, input=input, weight=weight)
    require(
        input.dim() == 2 and weight.dim() == 2 and input.size(1) == weight.size(1),
        f"{name}: input has shape {list(input.shape)} and weight {list(weight.shape)}; allowed: "
        "[tokens, hidden], [vocabulary, hidden].",
    )


def _check_rows(name, rows: int, **tensors) -> None:
    shapes(name, **{what: (x, [rows]) for what, x in tensors.items()})


def _check_smoothing(name, label_smoothing) -> None:
    require(
        not label_smoothing,
        f"{name}: label_smoothing is {label_smoothing}; allowed: 0.",
        "VALUE",
    )


@implements("npu_fused_linear_online_max_sum")
def npu_fused_linear_online_max_sum(
    input, weight, target, vocab_start_index, vocab_end_index, return_logits=False
):
    """(max, sum, predicted, target_mask, masked_target, logits) of this rank's part of the vocabulary."""
    name = "npu_fused_linear_online_max_sum"
    _check_linear(name, input, weight)
    _check_rows(name, input.size(0), target=target)
    require(
        target.dtype in (torch.int64, torch.int32),
        f"{name}: target is {target.dtype}; allowed: int64, int32.",
        "TYPE",
    )
    size = weight.size(0)
    require(
        0 <= vocab_start_index <= vocab_end_index < vocab_start_index + size,
        f"{name}: vocab_start_index is {vocab_start_index} and vocab_end_index {vocab_end_index}, "
        f"which is part of it; weight has {size} rows.",
        "VALUE",
    )
    logits = wide(input) @ wide(weight).t()
    top = logits.amax(1)
    total = torch.exp(logits - top[:, None]).sum(1)
    outside = (target < vocab_start_index) | (target > vocab_end_index)
    place = torch.where(outside, 0, target - vocab_start_index).to(target.dtype)
    predicted = logits.gather(1, place[:, None].to(torch.int64)).squeeze(1) - top
    predicted = torch.where(outside, 0, predicted)
    kept = logits.to(input.dtype) if return_logits else input.new_empty(0)
    return top.float(), total.float(), predicted.float(), _pack_bits(outside), place, kept


@implements("npu_fused_cross_entropy_loss_with_max_sum")
def npu_fused_cross_entropy_loss_with_max_sum(
    logits_max, sum_exp_logits, predicted_logits, *, label_smoothing=0.0, input=None, weight=None,
    vocab_parallel_logits=None,
):  # fmt: skip
    name = "npu_fused_cross_entropy_loss_with_max_sum"
    _check_smoothing(name, label_smoothing)
    logits = vocab_parallel_logits
    floating(name, logits_max=logits_max, vocab_parallel_logits=logits)
    rows = logits_max.numel()
    _check_rows(
        name, rows, logits_max=logits_max, sum_exp_logits=sum_exp_logits,
        predicted_logits=predicted_logits,
    )  # fmt: skip
    loss = torch.log(wide(sum_exp_logits)) - wide(predicted_logits)
    if logits is None:
        return loss.float(), loss.new_empty(0, dtype=torch.float32)
    require(
        logits.dim() == 2 and logits.size(0) == rows,
        f"{name}: vocab_parallel_logits has shape {list(logits.shape)}; allowed: [{rows}, vocabulary].",
    )
    softmax = torch.exp(wide(logits) - wide(logits_max)[:, None]) / wide(sum_exp_logits)[:, None]
    return loss.float(), softmax.float()


@implements("npu_fused_linear_cross_entropy_loss_with_max_sum_backward")
def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
    grad, input, weight, target_mask, masked_target, label_smoothing=0.0, logits_max=None,
    sum_exp_logits=None, softmax=None,
):  # fmt: skip
    name = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"
    _check_smoothing(name, label_smoothing)
    _check_linear(name, input, weight)
    rows, size = input.size(0), weight.size(0)
    _check_rows(
        name, rows, grad=grad, masked_target=masked_target, logits_max=logits_max,
        sum_exp_logits=sum_exp_logits,
    )  # fmt: skip
    require(
        target_mask.dtype == torch.uint8 and list(target_mask.shape) == [-(-rows // 8)],
        f"{name}: target_mask is {target_mask.dtype} with shape {list(target_mask.shape)}; allowed: "
        f"uint8, [{-(-rows // 8)}].",
    )
    require(
        softmax is not None or (logits_max is not None and sum_exp_logits is not None),
        f"{name}: give softmax, or logits_max and sum_exp_logits.",
    )
    shapes(name, softmax=(softmax, [rows, size]))
    if softmax is None:
        logits = wide(input) @ wide(weight).t()
        share = torch.exp(logits - wide(logits_max)[:, None]) / wide(sum_exp_logits)[:, None]
    else:
        share = wide(softmax)
    hit = torch.arange(size, device=input.device) == masked_target[:, None]
    hit = hit & ~_unpack_bits(target_mask, rows)[:, None]
    share = (share - hit.to(share.dtype)) * wide(grad)[:, None]
    dinput, dweight = share @ wide(weight), share.t() @ wide(input)
    return dinput.to(input.dtype), dweight.to(weight.dtype)
