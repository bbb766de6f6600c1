# SPDX-License-Identifier: Apache-2.0
"""Calls that must fail: each on a device, with the words any good message has.

Run as a script it prints, as JSON, what each call raised on cpu and npu.
"""

import json
import sys
import warnings

import torch
from torch.nn import functional as F


def ones(*shape, device, **kwargs):
    return torch.ones(*shape, device=device, **kwargs)


def index_scatter_add(d):
    index = torch.tensor([[0, -2]], device=d)
    return torch.zeros(3, 2, device=d).scatter_add(0, index, ones(1, 2, device=d))


def index_put(d):
    x = ones(3, 2, device=d)
    x[torch.tensor([-4], device=d)] = 1
    return x


def shape_index_add(d):
    index = torch.zeros(2, device=d, dtype=torch.long)
    return torch.zeros(3, 2, device=d).index_add(0, index, ones(3, 2, device=d))


def shape_attention(d):
    q = ones(2, 2, 3, 8, device=d)
    return F.scaled_dot_product_attention(q, ones(2, 2, 3, 4, device=d), q)


def overlap_out(d):
    x = ones(4, device=d)
    return torch.add(x[:3], 1, out=x[1:])


def value_modified_for_backward(d):
    x = ones(2, device=d).requires_grad_()
    y = x.exp()
    y.add_(1)
    return y.sum().backward()


# name: (call of a device, what the message says)
CASES = {
    # An unsupported dtype
    "dtype_sub_bool": (
        lambda d: ones(3, device=d, dtype=torch.bool) - ones(3, device=d, dtype=torch.bool),
        "bool|Bool|Subtraction",
    ),
    "dtype_neg_bool": (lambda d: -ones(3, device=d, dtype=torch.bool), "bool|Bool"),
    "dtype_bitwise_float": (
        lambda d: torch.bitwise_and(ones(3, device=d), ones(3, device=d)),
        "not implemented for|Float|float|integral",
    ),
    "dtype_mean_int": (
        lambda d: torch.arange(4, device=d).mean(),
        "Long|dtype|floating|Integer|integer",
    ),
    "dtype_mm_mixed": (
        lambda d: ones(2, 2, device=d) @ ones(2, 2, device=d, dtype=torch.double),
        "same dtype|expected",
    ),
    "dtype_sort_complex": (
        lambda d: ones(3, device=d, dtype=torch.cfloat).sort(),
        "complex|ComplexFloat|not implemented",
    ),
    "dtype_less_complex": (lambda d: ones(3, device=d, dtype=torch.cfloat) < 1, "complex|Complex"),
    "dtype_softmax_int": (lambda d: torch.arange(4, device=d).softmax(0), "Long|not implemented"),
    "dtype_in_place_cast": (lambda d: torch.arange(3, device=d).add_(1.5), "cast|result type"),
    "dtype_out": (
        lambda d: torch.add(ones(3, device=d), 1.5, out=torch.empty(3, device=d, dtype=torch.int)),
        "cast|result type",
    ),
    "dtype_masked_fill_mask": (
        lambda d: ones(3, device=d).masked_fill(ones(3, device=d), 0),
        "bool|mask|dtype",
    ),
    "dtype_gather_index": (lambda d: ones(3, device=d).gather(0, ones(3, device=d)), "index|int"),
    "dtype_embedding_index": (
        lambda d: F.embedding(ones(3, device=d), ones(3, 2, device=d)),
        "indices|Long|Int|int",
    ),
    "dtype_conv_mixed": (
        lambda d: F.conv2d(
            ones(1, 1, 3, 3, device=d), ones(1, 1, 2, 2, device=d, dtype=torch.half)
        ),
        "dtype|type|Float|Half|same",
    ),
    "dtype_layer_norm_mixed": (
        lambda d: F.layer_norm(ones(2, 3, device=d), (3,), ones(3, device=d, dtype=torch.double)),
        "Half|half|dtype|type|mixed",
    ),
    "dtype_nll_target": (
        lambda d: F.nll_loss(ones(2, 3, device=d), ones(2, device=d, dtype=torch.short)),
        "target|Long|Float|dtype|expected",
    ),
    "dtype_cholesky_int": (
        lambda d: torch.linalg.cholesky(torch.eye(3, device=d, dtype=torch.long)),
        "Long|floating|dtype|not implemented|Int",
    ),
    "dtype_int_requires_grad": (
        lambda d: torch.zeros(3, device=d, dtype=torch.int, requires_grad=True),
        "requires_grad|floating|gradients",
    ),
    # An index out of range
    "index_select": (
        lambda d: ones(3, 2, device=d).index_select(0, torch.tensor([0, 3], device=d)),
        "out of (range|bounds)",
    ),
    "index_select_negative": (
        lambda d: ones(3, 2, device=d).index_select(0, torch.tensor([-1], device=d)),
        "out of (range|bounds)",
    ),
    "index_gather": (
        lambda d: ones(3, 2, device=d).gather(0, torch.tensor([[5, 0]], device=d)),
        "out of (range|bounds)",
    ),
    "index_scatter": (
        lambda d: torch.zeros(3, 2, device=d).scatter(0, torch.tensor([[7, 0]], device=d), 1.0),
        "out of (range|bounds)",
    ),
    "index_scatter_add": (index_scatter_add, "out of (range|bounds)"),
    "index_tensor": (
        lambda d: ones(3, 2, device=d)[torch.tensor([0, 4], device=d)],
        "out of (range|bounds)",
    ),
    "index_put": (index_put, "out of (range|bounds)"),
    "index_add": (
        lambda d: torch.zeros(3, device=d).index_add(
            0, torch.tensor([3], device=d), ones(1, device=d)
        ),
        "out of (range|bounds)",
    ),
    "index_copy": (
        lambda d: torch.zeros(3, device=d).index_copy(
            0, torch.tensor([9], device=d), ones(1, device=d)
        ),
        "out of (range|bounds)|index",
    ),
    "index_fill": (
        lambda d: torch.zeros(3, device=d).index_fill(0, torch.tensor([-4], device=d), 1.0),
        "out of (range|bounds)|index",
    ),
    "index_take": (
        lambda d: ones(3, 2, device=d).take(torch.tensor([6], device=d)),
        "out of (range|bounds)|index",
    ),
    "index_put_flat": (
        lambda d: ones(3, device=d).put_(torch.tensor([3], device=d), ones(1, device=d)),
        "out of (range|bounds)|index",
    ),
    "index_embedding": (
        lambda d: F.embedding(torch.tensor([0, 5], device=d), ones(3, 2, device=d)),
        "out of range|index",
    ),
    "index_embedding_bag": (
        lambda d: F.embedding_bag(torch.tensor([[0, 9]], device=d), ones(3, 2, device=d)),
        "out of range|valid range",
    ),
    "index_nll_target": (
        lambda d: F.nll_loss(ones(2, 3, device=d), torch.tensor([0, 3], device=d)),
        "out of (range|bounds)|Target",
    ),
    "index_cross_entropy_target": (
        lambda d: F.cross_entropy(ones(2, 3, device=d), torch.tensor([0, -5], device=d)),
        "out of (range|bounds)|Target",
    ),
    "index_one_hot": (
        lambda d: F.one_hot(torch.tensor([5], device=d), 3),
        "Class values|out of bounds",
    ),
    "index_topk": (
        lambda d: ones(3, device=d).topk(4),
        "out of (range|bounds)|selected index k|k not in range",
    ),
    "index_kthvalue": (lambda d: ones(3, device=d).kthvalue(4), "k|range"),
    "index_select_number": (lambda d: ones(3, device=d)[3], "out of (range|bounds)"),
    "index_narrow": (lambda d: ones(3, device=d).narrow(0, 2, 2), "out of range|start|exceed"),
    "index_as_strided": (
        lambda d: ones(3, device=d).as_strided((4,), (1,)),
        "bound|storage|out of",
    ),
    "index_repeat_interleave": (
        lambda d: torch.repeat_interleave(ones(2, device=d), torch.tensor([1, -1], device=d)),
        "repeats|negative",
    ),
    "index_bincount": (
        lambda d: torch.tensor([1, -1], device=d).bincount(),
        "negative|non-negative",
    ),
    # A shape mismatch
    "shape_add": (lambda d: ones(3, device=d) + ones(4, device=d), "size|match"),
    "shape_add_in_place": (
        lambda d: ones(3, device=d).add_(ones(2, 3, device=d)),
        "shape|size|broadcast",
    ),
    "shape_mm": (
        lambda d: ones(2, 3, device=d) @ ones(2, 3, device=d),
        "shapes|cannot be multiplied",
    ),
    "shape_bmm": (
        lambda d: torch.bmm(ones(2, 3, 4, device=d), ones(3, 4, 5, device=d)),
        "size|batch|Expected",
    ),
    "shape_addmm_bias": (
        lambda d: torch.addmm(ones(7, device=d), ones(2, 3, device=d), ones(3, 4, device=d)),
        "shapes|size|expand|match",
    ),
    "shape_linear": (
        lambda d: F.linear(ones(2, 3, device=d), ones(4, 5, device=d)),
        "shape|multiplied|size",
    ),
    "shape_cat": (
        lambda d: torch.cat([ones(2, 3, device=d), ones(2, 4, device=d)]),
        "[Ss]izes of tensors must match",
    ),
    "shape_stack": (
        lambda d: torch.stack([ones(2, device=d), ones(3, device=d)]),
        "equal size|same size|stack expects",
    ),
    "shape_conv": (
        lambda d: F.conv2d(ones(1, 3, 4, 4, device=d), ones(2, 4, 3, 3, device=d)),
        "channels",
    ),
    "shape_conv_kernel": (
        lambda d: F.conv2d(ones(1, 1, 2, 2, device=d), ones(1, 1, 3, 3, device=d)),
        "[Kk]ernel size",
    ),
    "shape_pool": (lambda d: F.max_pool2d(ones(1, 1, 2, 2, device=d), 5), "too small|size"),
    "shape_view": (lambda d: ones(6, device=d).view(4, 2), "shape|size"),
    "shape_reshape": (lambda d: ones(6, device=d).reshape(-1, 4), "shape|invalid"),
    "shape_expand": (lambda d: ones(3, device=d).expand(2, 4), "expand|size"),
    "shape_layer_norm": (
        lambda d: F.layer_norm(ones(2, 3, device=d), (4,)),
        "normalized_shape|shape",
    ),
    "shape_batch_norm": (
        lambda d: F.batch_norm(ones(2, 3, device=d), ones(4, device=d), ones(4, device=d)),
        "running_mean|elements|weight|channels",
    ),
    "shape_group_norm": (lambda d: F.group_norm(ones(2, 3, device=d), 2), "divisible|groups"),
    "shape_nll": (
        lambda d: F.nll_loss(ones(2, 3, device=d), torch.zeros(3, device=d, dtype=torch.long)),
        "size|match|batch",
    ),
    "shape_index_add": (shape_index_add, "size|shape|same"),
    "shape_gather": (
        lambda d: ones(3, device=d).gather(0, torch.zeros(2, 2, device=d, dtype=torch.long)),
        "size|shape|dimension",
    ),
    "shape_where": (
        lambda d: torch.where(ones(3, device=d) > 0, ones(2, device=d), ones(3, device=d)),
        "shape|size|match|broadcast",
    ),
    "shape_copy": (
        lambda d: torch.zeros(3, device=d).copy_(ones(4, device=d)),
        "shape|size|broadcast",
    ),
    "shape_masked_select": (
        lambda d: ones(3, device=d).masked_select(ones(4, device=d) > 0),
        "shape|size|mask",
    ),
    "shape_inverse": (lambda d: torch.linalg.inv(ones(2, 3, device=d)), "square|batches"),
    "shape_split": (lambda d: ones(5, device=d).split([2, 2]), "split|sum|sizes"),
    "shape_backward": (
        lambda d: (ones(3, device=d).requires_grad_() * 2).backward(),
        "scalar|grad",
    ),
    "shape_lstm": (
        lambda d: torch.nn.LSTM(4, 5).to(d)(ones(2, 3, 6, device=d)),
        "input.size|size|input|expected",
    ),
    "shape_attention": (shape_attention, "size|match|dimension|shape"),
    "overlap_in_place": (lambda d: ones(1, device=d).expand(3).add_(1), "overlap|memory|single"),
    "overlap_out": (overlap_out, "overlap|memory"),
    "overlap_mm_out": (
        lambda d: torch.mm(
            ones(4, 5, device=d), ones(5, 6, device=d), out=ones(6, device=d).expand(4, 6)
        ),
        "overlap|memory|single",
    ),
    "overlap_addmm_": (
        lambda d: ones(6, device=d).expand(4, 6).addmm_(ones(4, 5, device=d), ones(5, 6, device=d)),
        "overlap|memory|single",
    ),
    # Dimensions
    "dim_sum": (lambda d: ones(3, device=d).sum(1), "[Dd]imension out of range"),
    "dim_softmax": (lambda d: ones(3, device=d).softmax(-2), "[Dd]imension out of range"),
    "dim_cumsum": (lambda d: ones(3, device=d).cumsum(3), "[Dd]imension out of range"),
    "dim_transpose": (lambda d: ones(3, device=d).transpose(0, 2), "[Dd]imension out of range"),
    "dim_sum_twice": (
        lambda d: ones(3, 2, device=d).sum((0, 0)),
        "appears multiple times|repeat|unique|duplicate",
    ),
    "dim_sort": (lambda d: ones(3, device=d).sort(2), "[Dd]imension out of range"),
    "dim_cat": (
        lambda d: torch.cat([ones(2, device=d), ones(2, device=d)], 1),
        "[Dd]imension out of range",
    ),
    "dim_flip": (lambda d: ones(3, device=d).flip(1), "[Dd]imension out of range"),
    "dim_max_of_nothing": (
        lambda d: torch.empty(0, device=d).max(),
        "no elements|non-zero size|identity|zero|dim",
    ),
    "dim_argmax_of_nothing": (
        lambda d: torch.empty(0, 2, device=d).argmax(0),
        "non-zero size|dim|zero|reduction",
    ),
    # Sizes
    "size_negative": (lambda d: torch.empty(-1, device=d), "negative dimension"),
    "size_negative_zeros": (
        lambda d: torch.zeros(2, -3, device=d),
        "negative dimension|non-negative",
    ),
    "size_overflow": (
        lambda d: torch.empty(2**40, 2**40, device=d),
        "overflow|too large|more than",
    ),
    "size_overflow_repeat": (
        lambda d: ones(2**10, device=d).repeat(2**40, 2**40),
        "overflow|too large|more than|size|memory",
    ),
    "size_negative_resize": (lambda d: torch.empty(0, device=d).resize_(-2), "negative|overflow"),
    "size_negative_pad": (
        lambda d: F.pad(ones(3, device=d), (-5, 0)),
        "[Nn]egative|non-negative|padding|size",
    ),
    "size_negative_window": (
        lambda d: F.avg_pool2d(ones(1, 1, 4, 4, device=d), -2),
        "[Nn]egative|positive|stride|size|out of range",
    ),
    "size_zero_stride": (
        lambda d: F.conv2d(ones(1, 1, 4, 4, device=d), ones(1, 1, 2, 2, device=d), stride=0),
        "stride|positive|zero",
    ),
    "size_arange": (lambda d: torch.arange(5, 0, 1, device=d), "step|sign|bound"),
    "size_arange_zero": (lambda d: torch.arange(0, 5, 0, device=d), "step|zero|nonzero"),
    "size_linspace": (lambda d: torch.linspace(0, 1, -2, device=d), "number of steps|non-negative"),
    "size_eye": (lambda d: torch.eye(-1, device=d), "[Nn]|positive|non-negative|got"),
    "size_randperm": (lambda d: torch.randperm(-1, device=d), "positive|negative|n must"),
    # Values
    "value_singular_inverse": (
        lambda d: torch.linalg.inv(torch.zeros(3, 3, device=d)),
        "singular|not invertible",
    ),
    "value_singular_solve": (
        lambda d: torch.linalg.solve(torch.zeros(3, 3, device=d), ones(3, device=d)),
        "singular|not invertible|solved",
    ),
    "value_cholesky": (
        lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
        "positive-definite|positive definite",
    ),
    "value_integer_division": (
        lambda d: torch.tensor([1], device=d) // torch.tensor([0], device=d),
        "zero|ZeroDivision",
    ),
    "value_remainder": (
        lambda d: torch.tensor([1], device=d) % torch.tensor([0], device=d),
        "zero|ZeroDivision",
    ),
    "value_dropout": (lambda d: F.dropout(ones(3, device=d), 1.5), "probability|between 0 and 1|p"),
    "value_bernoulli": (
        lambda d: torch.empty(3, device=d).bernoulli_(2.0),
        "probability|p|0 and 1|0, 1",
    ),
    "value_normal": (
        lambda d: torch.empty(3, device=d).normal_(0, -1),
        "std|>= 0|positive|expects",
    ),
    "value_uniform": (lambda d: torch.empty(3, device=d).uniform_(2, 1), "from|to|uniform_"),
    "value_random": (lambda d: torch.empty(3, device=d).random_(5, 2), "from|to|random_"),
    "value_multinomial": (
        lambda d: torch.multinomial(torch.zeros(3, device=d), 2),
        "probability|sum|zero|invalid multinomial|inf",
    ),
    "value_multinomial_too_many": (
        lambda d: torch.multinomial(ones(3, device=d), 5),
        "sample|replacement|categories",
    ),
    "value_rounding_mode": (
        lambda d: torch.div(ones(2, device=d), 2, rounding_mode="up"),
        "rounding_mode",
    ),
    "value_reduction": (
        lambda d: F.mse_loss(ones(2, device=d), ones(2, device=d), reduction="most"),
        "reduction|valid",
    ),
    "value_exponential": (
        lambda d: torch.empty(3, device=d).exponential_(-1.0),
        "lambd|positive|>|expects|exponential",
    ),
    "value_item": (lambda d: ones(2, device=d).item(), "converted to Scalar"),
    "value_bool": (lambda d: bool(ones(2, device=d)), "ambiguous"),
    "value_in_place_leaf": (lambda d: ones(2, device=d).requires_grad_().add_(1), "leaf"),
    "value_modified_for_backward": (
        value_modified_for_backward,
        "modified by an inplace operation",
    ),
}


def outcome(name: str, device: str) -> dict:
    """What the call raised there, and whether the device still adds up."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CASES[name][0](device)
            if device != "cpu":
                torch.npu.synchronize()
        raised = {"type": None, "text": ""}
    except Exception as error:
        raised = {"type": type(error).__name__, "text": str(error)}
    two = torch.ones(4, device=device) + 1
    raised["usable"] = two.sum().item() == 8
    return raised


if __name__ == "__main__":
    import torch_npu  # noqa: F401

    names = sys.argv[1:] or list(CASES)
    print(json.dumps({n: {d: outcome(n, d) for d in ("cpu", "npu")} for n in names}))
