# SPDX-License-Identifier: Apache-2.0
"""Calls that must fail: each on a device, with the words any good message has.

Run as a script it prints, as JSON, what each call raised on cpu and npu.
"""

import json
import sys
import warnings

import torch
from torch.nn import functional as F

# name: (call of a device, what the message says)
CASES = {}


def case(says: str):
    def add(function):
        CASES[function.__name__] = (function, says)
        return function

    return add


def ones(*shape, device, **kwargs):
    return torch.ones(*shape, device=device, **kwargs)


# An unsupported dtype -------------------------------------------------------


@case("bool|Bool|Subtraction")
def dtype_sub_bool(d):
    return ones(3, device=d, dtype=torch.bool) - ones(3, device=d, dtype=torch.bool)


@case("bool|Bool")
def dtype_neg_bool(d):
    return -ones(3, device=d, dtype=torch.bool)


@case("not implemented for|Float|float|integral")
def dtype_bitwise_float(d):
    return torch.bitwise_and(ones(3, device=d), ones(3, device=d))


@case("Long|dtype|floating|Integer|integer")
def dtype_mean_int(d):
    return torch.arange(4, device=d).mean()


@case("same dtype|expected")
def dtype_mm_mixed(d):
    return ones(2, 2, device=d) @ ones(2, 2, device=d, dtype=torch.double)


@case("complex|ComplexFloat|not implemented")
def dtype_sort_complex(d):
    return ones(3, device=d, dtype=torch.cfloat).sort()


@case("complex|Complex")
def dtype_less_complex(d):
    return ones(3, device=d, dtype=torch.cfloat) < 1


@case("Long|not implemented")
def dtype_softmax_int(d):
    return torch.arange(4, device=d).softmax(0)


@case("cast|result type")
def dtype_in_place_cast(d):
    return torch.arange(3, device=d).add_(1.5)


@case("cast|result type")
def dtype_out(d):
    return torch.add(ones(3, device=d), 1.5, out=torch.empty(3, device=d, dtype=torch.int))


@case("bool|mask|dtype")
def dtype_masked_fill_mask(d):
    return ones(3, device=d).masked_fill(ones(3, device=d), 0)


@case("index|int")
def dtype_gather_index(d):
    return ones(3, device=d).gather(0, ones(3, device=d))


@case("indices|Long|Int|int")
def dtype_embedding_index(d):
    return F.embedding(ones(3, device=d), ones(3, 2, device=d))


@case("dtype|type|Float|Half|same")
def dtype_conv_mixed(d):
    return F.conv2d(ones(1, 1, 3, 3, device=d), ones(1, 1, 2, 2, device=d, dtype=torch.half))


@case("Half|half|dtype|type|mixed")
def dtype_layer_norm_mixed(d):
    return F.layer_norm(ones(2, 3, device=d), (3,), ones(3, device=d, dtype=torch.double))


@case("target|Long|Float|dtype|expected")
def dtype_nll_target(d):
    return F.nll_loss(ones(2, 3, device=d), ones(2, device=d, dtype=torch.short))


@case("Long|floating|dtype|not implemented|Int")
def dtype_cholesky_int(d):
    return torch.linalg.cholesky(torch.eye(3, device=d, dtype=torch.long))


@case("requires_grad|floating|gradients")
def dtype_int_requires_grad(d):
    return torch.zeros(3, device=d, dtype=torch.int, requires_grad=True)


# An index out of range ------------------------------------------------------


@case("out of (range|bounds)")
def index_select(d):
    return ones(3, 2, device=d).index_select(0, torch.tensor([0, 3], device=d))


@case("out of (range|bounds)")
def index_select_negative(d):
    return ones(3, 2, device=d).index_select(0, torch.tensor([-1], device=d))


@case("out of (range|bounds)")
def index_gather(d):
    return ones(3, 2, device=d).gather(0, torch.tensor([[5, 0]], device=d))


@case("out of (range|bounds)")
def index_scatter(d):
    return torch.zeros(3, 2, device=d).scatter(0, torch.tensor([[7, 0]], device=d), 1.0)


@case("out of (range|bounds)")
def index_scatter_add(d):
    index = torch.tensor([[0, -2]], device=d)
    return torch.zeros(3, 2, device=d).scatter_add(0, index, ones(1, 2, device=d))


@case("out of (range|bounds)")
def index_tensor(d):
    return ones(3, 2, device=d)[torch.tensor([0, 4], device=d)]


@case("out of (range|bounds)")
def index_put(d):
    x = ones(3, 2, device=d)
    x[torch.tensor([-4], device=d)] = 1
    return x


@case("out of (range|bounds)")
def index_add(d):
    return torch.zeros(3, device=d).index_add(0, torch.tensor([3], device=d), ones(1, device=d))


@case("out of (range|bounds)|index")
def index_copy(d):
    return torch.zeros(3, device=d).index_copy(0, torch.tensor([9], device=d), ones(1, device=d))


@case("out of (range|bounds)|index")
def index_fill(d):
    return torch.zeros(3, device=d).index_fill(0, torch.tensor([-4], device=d), 1.0)


@case("out of (range|bounds)|index")
def index_take(d):
    return ones(3, 2, device=d).take(torch.tensor([6], device=d))


@case("out of (range|bounds)|index")
def index_put_flat(d):
    return ones(3, device=d).put_(torch.tensor([3], device=d), ones(1, device=d))


@case("out of range|index")
def index_embedding(d):
    return F.embedding(torch.tensor([0, 5], device=d), ones(3, 2, device=d))


@case("out of range|valid range")
def index_embedding_bag(d):
    return F.embedding_bag(torch.tensor([[0, 9]], device=d), ones(3, 2, device=d))


@case("out of (range|bounds)|Target")
def index_nll_target(d):
    return F.nll_loss(ones(2, 3, device=d), torch.tensor([0, 3], device=d))


@case("out of (range|bounds)|Target")
def index_cross_entropy_target(d):
    return F.cross_entropy(ones(2, 3, device=d), torch.tensor([0, -5], device=d))


@case("Class values|out of bounds")
def index_one_hot(d):
    return F.one_hot(torch.tensor([5], device=d), 3)


@case("out of (range|bounds)|selected index k|k not in range")
def index_topk(d):
    return ones(3, device=d).topk(4)


@case("k|range")
def index_kthvalue(d):
    return ones(3, device=d).kthvalue(4)


@case("out of (range|bounds)")
def index_select_number(d):
    return ones(3, device=d)[3]


@case("out of range|start|exceed")
def index_narrow(d):
    return ones(3, device=d).narrow(0, 2, 2)


@case("bound|storage|out of")
def index_as_strided(d):
    return ones(3, device=d).as_strided((4,), (1,))


@case("repeats|negative")
def index_repeat_interleave(d):
    return torch.repeat_interleave(ones(2, device=d), torch.tensor([1, -1], device=d))


@case("negative|non-negative")
def index_bincount(d):
    return torch.tensor([1, -1], device=d).bincount()


# A shape mismatch -----------------------------------------------------------


@case("size|match")
def shape_add(d):
    return ones(3, device=d) + ones(4, device=d)


@case("shape|size|broadcast")
def shape_add_in_place(d):
    return ones(3, device=d).add_(ones(2, 3, device=d))


@case("shapes|cannot be multiplied")
def shape_mm(d):
    return ones(2, 3, device=d) @ ones(2, 3, device=d)


@case("size|batch|Expected")
def shape_bmm(d):
    return torch.bmm(ones(2, 3, 4, device=d), ones(3, 4, 5, device=d))


@case("shapes|size|expand|match")
def shape_addmm_bias(d):
    return torch.addmm(ones(7, device=d), ones(2, 3, device=d), ones(3, 4, device=d))


@case("shape|multiplied|size")
def shape_linear(d):
    return F.linear(ones(2, 3, device=d), ones(4, 5, device=d))


@case("[Ss]izes of tensors must match")
def shape_cat(d):
    return torch.cat([ones(2, 3, device=d), ones(2, 4, device=d)])


@case("equal size|same size|stack expects")
def shape_stack(d):
    return torch.stack([ones(2, device=d), ones(3, device=d)])


@case("channels")
def shape_conv(d):
    return F.conv2d(ones(1, 3, 4, 4, device=d), ones(2, 4, 3, 3, device=d))


@case("[Kk]ernel size")
def shape_conv_kernel(d):
    return F.conv2d(ones(1, 1, 2, 2, device=d), ones(1, 1, 3, 3, device=d))


@case("too small|size")
def shape_pool(d):
    return F.max_pool2d(ones(1, 1, 2, 2, device=d), 5)


@case("shape|size")
def shape_view(d):
    return ones(6, device=d).view(4, 2)


@case("shape|invalid")
def shape_reshape(d):
    return ones(6, device=d).reshape(-1, 4)


@case("expand|size")
def shape_expand(d):
    return ones(3, device=d).expand(2, 4)


@case("normalized_shape|shape")
def shape_layer_norm(d):
    return F.layer_norm(ones(2, 3, device=d), (4,))


@case("running_mean|elements|weight|channels")
def shape_batch_norm(d):
    return F.batch_norm(ones(2, 3, device=d), ones(4, device=d), ones(4, device=d))


@case("divisible|groups")
def shape_group_norm(d):
    return F.group_norm(ones(2, 3, device=d), 2)


@case("size|match|batch")
def shape_nll(d):
    return F.nll_loss(ones(2, 3, device=d), torch.zeros(3, device=d, dtype=torch.long))


@case("size|shape|same")
def shape_index_add(d):
    index = torch.zeros(2, device=d, dtype=torch.long)
    return torch.zeros(3, 2, device=d).index_add(0, index, ones(3, 2, device=d))


@case("size|shape|dimension")
def shape_gather(d):
    return ones(3, device=d).gather(0, torch.zeros(2, 2, device=d, dtype=torch.long))


@case("shape|size|match|broadcast")
def shape_where(d):
    return torch.where(ones(3, device=d) > 0, ones(2, device=d), ones(3, device=d))


@case("shape|size|broadcast")
def shape_copy(d):
    return torch.zeros(3, device=d).copy_(ones(4, device=d))


@case("shape|size|mask")
def shape_masked_select(d):
    return ones(3, device=d).masked_select(ones(4, device=d) > 0)


@case("square|batches")
def shape_inverse(d):
    return torch.linalg.inv(ones(2, 3, device=d))


@case("split|sum|sizes")
def shape_split(d):
    return ones(5, device=d).split([2, 2])


@case("scalar|grad")
def shape_backward(d):
    return (ones(3, device=d).requires_grad_() * 2).backward()


@case("input.size|size|input|expected")
def shape_lstm(d):
    return torch.nn.LSTM(4, 5).to(d)(ones(2, 3, 6, device=d))


@case("size|match|dimension|shape")
def shape_attention(d):
    q = ones(2, 2, 3, 8, device=d)
    return F.scaled_dot_product_attention(q, ones(2, 2, 3, 4, device=d), q)


@case("overlap|memory|single")
def overlap_in_place(d):
    return ones(1, device=d).expand(3).add_(1)


@case("overlap|memory")
def overlap_out(d):
    x = ones(4, device=d)
    return torch.add(x[:3], 1, out=x[1:])


# Dimensions -----------------------------------------------------------------


@case("[Dd]imension out of range")
def dim_sum(d):
    return ones(3, device=d).sum(1)


@case("[Dd]imension out of range")
def dim_softmax(d):
    return ones(3, device=d).softmax(-2)


@case("[Dd]imension out of range")
def dim_cumsum(d):
    return ones(3, device=d).cumsum(3)


@case("[Dd]imension out of range")
def dim_transpose(d):
    return ones(3, device=d).transpose(0, 2)


@case("appears multiple times|repeat|unique|duplicate")
def dim_sum_twice(d):
    return ones(3, 2, device=d).sum((0, 0))


@case("[Dd]imension out of range")
def dim_sort(d):
    return ones(3, device=d).sort(2)


@case("[Dd]imension out of range")
def dim_cat(d):
    return torch.cat([ones(2, device=d), ones(2, device=d)], 1)


@case("[Dd]imension out of range")
def dim_flip(d):
    return ones(3, device=d).flip(1)


@case("no elements|non-zero size|identity|zero|dim")
def dim_max_of_nothing(d):
    return torch.empty(0, device=d).max()


@case("non-zero size|dim|zero|reduction")
def dim_argmax_of_nothing(d):
    return torch.empty(0, 2, device=d).argmax(0)


# Sizes ----------------------------------------------------------------------


@case("negative dimension")
def size_negative(d):
    return torch.empty(-1, device=d)


@case("negative dimension|non-negative")
def size_negative_zeros(d):
    return torch.zeros(2, -3, device=d)


@case("overflow|too large|more than")
def size_overflow(d):
    return torch.empty(2**40, 2**40, device=d)


@case("overflow|too large|more than|size|memory")
def size_overflow_repeat(d):
    return ones(2**10, device=d).repeat(2**40, 2**40)


@case("negative|overflow")  # CPU counts elements first
def size_negative_resize(d):
    return torch.empty(0, device=d).resize_(-2)


@case("[Nn]egative|non-negative|padding|size")
def size_negative_pad(d):
    return F.pad(ones(3, device=d), (-5, 0))


@case("[Nn]egative|positive|stride|size")
def size_negative_window(d):
    return F.avg_pool2d(ones(1, 1, 4, 4, device=d), -2)


@case("stride|positive|zero")
def size_zero_stride(d):
    return F.conv2d(ones(1, 1, 4, 4, device=d), ones(1, 1, 2, 2, device=d), stride=0)


@case("step|sign|bound")
def size_arange(d):
    return torch.arange(5, 0, 1, device=d)


@case("step|zero|nonzero")
def size_arange_zero(d):
    return torch.arange(0, 5, 0, device=d)


@case("number of steps|non-negative")
def size_linspace(d):
    return torch.linspace(0, 1, -2, device=d)


@case("[Nn]|positive|non-negative|got")
def size_eye(d):
    return torch.eye(-1, device=d)


@case("positive|negative|n must")
def size_randperm(d):
    return torch.randperm(-1, device=d)


# Values ---------------------------------------------------------------------


@case("singular|not invertible")
def value_singular_inverse(d):
    return torch.linalg.inv(torch.zeros(3, 3, device=d))


@case("singular|not invertible|solved")
def value_singular_solve(d):
    return torch.linalg.solve(torch.zeros(3, 3, device=d), ones(3, device=d))


@case("positive-definite|positive definite")
def value_cholesky(d):
    return torch.linalg.cholesky(-torch.eye(3, device=d))


@case("zero|ZeroDivision")
def value_integer_division(d):
    return torch.tensor([1], device=d) // torch.tensor([0], device=d)


@case("zero|ZeroDivision")
def value_remainder(d):
    return torch.tensor([1], device=d) % torch.tensor([0], device=d)


@case("probability|between 0 and 1|p")
def value_dropout(d):
    return F.dropout(ones(3, device=d), 1.5)


@case("probability|p|0 and 1|0, 1")
def value_bernoulli(d):
    return torch.empty(3, device=d).bernoulli_(2.0)


@case("std|>= 0|positive|expects")
def value_normal(d):
    return torch.empty(3, device=d).normal_(0, -1)


@case("from|to|uniform_")
def value_uniform(d):
    return torch.empty(3, device=d).uniform_(2, 1)


@case("from|to|random_")
def value_random(d):
    return torch.empty(3, device=d).random_(5, 2)


@case("probability|sum|zero|invalid multinomial|inf")
def value_multinomial(d):
    return torch.multinomial(torch.zeros(3, device=d), 2)


@case("sample|replacement|categories")
def value_multinomial_too_many(d):
    return torch.multinomial(ones(3, device=d), 5)


@case("rounding_mode")
def value_rounding_mode(d):
    return torch.div(ones(2, device=d), 2, rounding_mode="up")


@case("reduction|valid")
def value_reduction(d):
    return F.mse_loss(ones(2, device=d), ones(2, device=d), reduction="most")


@case("lambd|positive|>|expects|exponential")
def value_exponential(d):
    return torch.empty(3, device=d).exponential_(-1.0)


@case("converted to Scalar")
def value_item(d):
    return ones(2, device=d).item()


@case("ambiguous")
def value_bool(d):
    return bool(ones(2, device=d))


@case("leaf")
def value_in_place_leaf(d):
    return ones(2, device=d).requires_grad_().add_(1)


@case("modified by an inplace operation")
def value_modified_for_backward(d):
    x = ones(2, device=d).requires_grad_()
    y = x.exp()
    y.add_(1)
    return y.sum().backward()


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
