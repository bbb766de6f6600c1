# SPDX-License-Identifier: Apache-2.0
"""Matrix products: linear, batched, grouped; also of quantised matrices."""

from itertools import pairwise

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import dtype_of, refuse_given, require, unsupported, wide
from torch_npu.ops._int4 import pack_int4, unpack_int4


@implements("npu_linear")
def npu_linear(input, weight, bias=None):
    return F.linear(input, weight, bias)


@implements("npu_linear_backward")
def npu_linear_backward(grad, input, weight):
    return grad @ weight, grad.flatten(0, -2).t() @ input.flatten(0, -2)


@implements("npu_bmmV2")
def npu_bmmV2(input, mat2, output_sizes):
    product = torch.matmul(input, mat2)
    return product.reshape(output_sizes) if output_sizes else product


@implements("npu_transpose_batchmatmul")
def npu_transpose_batchmatmul(
    input, weight, *, bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None,
    batch_split_factor=1,
):  # fmt: skip
    name = "npu_transpose_batchmatmul"
    refuse_given(name, scale=scale)
    require(
        batch_split_factor == 1, f"{name}: batch_split_factor is {batch_split_factor}; allowed: 1."
    )
    for what, x in (("input", input), ("weight", weight)):
        require(x.dim() == 3, f"{name}: {what} has {x.dim()} dimensions; allowed: 3.")
    y = torch.bmm(input.permute(perm_x1 or (0, 1, 2)), weight.permute(perm_x2 or (0, 1, 2)))
    y = y if bias is None else y + bias
    return y.permute(perm_y or (1, 0, 2)).contiguous()


def _numbers(group_list, kind: int, name: str) -> list:
    """The values of a group_list tensor."""
    require(
        group_list.dtype in (torch.int64, torch.int32),
        f"{name}: group_list is {group_list.dtype}; allowed: int64, int32.",
        "TYPE",
    )
    shape = list(group_list.shape)
    pairs = kind == 2
    require(
        len(shape) == 2 and shape[1] == 2 if pairs else len(shape) == 1,
        f"{name}: group_list has shape {shape}; group_list_type {kind} takes "
        + ("[groups, 2]." if pairs else "[groups]."),
    )
    return group_list.tolist()


def _bounds(group_list, kind: int, name: str) -> list[tuple[int, int]]:
    """(weight number, rows) for each group."""
    require(kind in (0, 1, 2), f"{name}: group_list_type is {kind}; allowed: 0, 1, 2.", "VALUE")
    if isinstance(group_list, torch.Tensor):
        group_list = _numbers(group_list, kind, name)
    if kind == 2:
        bounds = [tuple(pair) for pair in group_list]
    elif kind == 1:
        bounds = list(enumerate(group_list))
    else:
        bounds = [(i, b - a) for i, (a, b) in enumerate(pairwise([0, *group_list]))]
    what = "cumulative numbers must not fall" if kind == 0 else "a group cannot have fewer than 0"
    require(
        all(count >= 0 for _, count in bounds),
        f"{name}: group_list is {group_list} with group_list_type {kind}: {what}.",
        "VALUE",
    )
    return bounds


class _Grouped:
    """One group's product with its scales, bias and activation."""

    def __init__(
        self,
        name,
        bias,
        scale,
        offset,
        antiquant_scale,
        antiquant_offset,
        per_token,
        act,
        dtype,
        single,
    ):
        self.name, self.bias, self.scale, self.offset = name, bias, scale, offset
        self.anti, self.anti_offset, self.per_token = antiquant_scale, antiquant_offset, per_token
        self.act, self.dtype, self.single = act, dtype, single

    def of(self, tensors, i, what="weight"):
        if not tensors:
            return None
        whole = tensors[0] if self.single else tensors
        require(
            0 <= i < len(whole), f"{self.name}: group {i} has no {what}: there are {len(whole)}."
        )
        return whole[i]

    def product(self, x, w, i, tokens):
        if w.dtype == torch.int32 and x.dtype != torch.int32:
            w = unpack_int4(w)
        anti = self.of(self.anti, i)
        if anti is not None:
            shift = self.of(self.anti_offset, i)
            w = (wide(w) if shift is None else wide(w) + wide(shift)) * wide(anti)
        whole = x.dtype == torch.int8
        require(
            x.size(-1) == w.size(-2),
            f"{self.name}: x has {x.size(-1)} columns and weight {i} {w.size(-2)} rows; they must "
            "be the same.",
        )
        require(
            anti is not None or x.dtype == w.dtype or not w.is_floating_point(),
            f"{self.name}: weight {i} is {w.dtype}; it must be x's {x.dtype}.",
            "TYPE",
        )
        y = x.double() @ w.double() if whole else wide(x) @ wide(w)
        bias, scale = self.of(self.bias, i), self.of(self.scale, i)
        require(
            bias is None or bias.size(-1) == y.size(-1),
            f"{self.name}: bias {i} has {0 if bias is None else bias.size(-1)} elements; the product has "
            f"{y.size(-1)} columns.",
        )
        late = bias is not None and whole and bias.is_floating_point()
        if bias is not None and not late:
            y = y + bias.to(y.dtype)
        if scale is not None:
            y = y * scale_of(scale).to(y.dtype)
        if tokens is not None:
            y = y * tokens.to(y.dtype)[:, None]
        if late:
            y = y + bias.to(y.dtype)
        y = _activate(y, self.act, self.name)
        if self.dtype == torch.int8:
            shift = self.of(self.offset, i)
            y = y if shift is None else y + shift.to(y.dtype)
            return torch.clamp(torch.round(y), -128, 127).to(torch.int8)
        return y.to(self.dtype)


def scale_of(scale):
    """Scales as numbers; int64 ones are npu_trans_quant_param's."""
    if scale.dtype == torch.int64:
        return (scale & 0xFFFFFFFF).to(torch.int32).view(torch.float32)
    return scale


def _activate(y, act: int, name: str):
    if act in (0, None):
        return y
    kinds = {
        1: F.relu,
        2: lambda t: F.gelu(t, approximate="tanh"),
        4: lambda t: t * torch.sigmoid(1.702 * t),
        5: F.silu,
    }
    require(act in kinds, f"{name}: act_type is {act}; allowed: 0, 1, 2, 4, 5.", "VALUE")
    return kinds[act](y)


def _output_dtype(x, number, name):
    if number is None:
        return torch.float16 if x.dtype == torch.int8 else x.dtype
    return (
        number if isinstance(number, torch.dtype) else dtype_of(number, None, name, "output_dtype")
    )


def _grouped(
    name, x, weight, bias, scale, offset, anti, anti_offset, per_token, groups, split_item,
    group_type, act, dtype,
):  # fmt: skip
    require(x and weight, f"{name}: Invalid inputs: neither x nor weight could be empty.")
    require(
        split_item in (0, 1, 2, 3),
        f"{name}: Invalid value of split_item [{split_item}], which should only be one of 0/1/2/3.",
    )
    require(
        group_type in (-1, 0, 2),
        f"{name}: The group type must be -1, 0 or 2, but now is [{group_type}]",
    )
    single = len(weight) == 1 and weight[0].dim() == 3
    rest = _Grouped(name, bias, scale, offset, anti, anti_offset, per_token, act, dtype, single)
    if groups is None:
        require(
            len(x) == len(weight) or single,
            f"{name}: x has {len(x)} tensors and weight {len(weight)}; without group_list give as many.",
        )
        outs = [
            rest.product(
                a.flatten(0, -2), rest.of(weight, i), i, per_token[i] if per_token else None
            ).unflatten(0, a.shape[:-1])
            for i, a in enumerate(x)
        ]
        return [torch.cat(outs)] if split_item in (2, 3) else outs
    require(len(x) == 1, f"{name}: x has {len(x)} tensors; with group_list give one.")
    return (
        _by_rows(name, x[0], weight, rest, groups, split_item)
        if group_type != 2
        else _by_columns(name, x[0], weight, groups, dtype)
    )


def _check_total(name, groups, x, dim: int, what: str) -> None:
    total = sum(count for _, count in groups)
    require(
        total <= x.size(dim),
        f"{name}: group_list holds {total} {what}, but x has {x.size(dim)}.",
        "VALUE",
    )


def _by_rows(name, x, weight, rest, groups, split_item):
    require(x.dim() == 2, f"{name}: x has {x.dim()} dimensions; with group_list allowed: 2.")
    _check_total(name, groups, x, 0, "rows")
    outs, at = [], 0
    tokens = rest.per_token[0] if rest.per_token else None
    for i, count in groups:
        rows = slice(at, at + count)
        outs.append(
            rest.product(x[rows], rest.of(weight, i), i, None if tokens is None else tokens[rows])
        )
        at += count
    if split_item in (0, 1):
        return outs
    columns = outs[0].size(1) if outs else weight[0].size(-1)
    return [torch.cat([*outs, x.new_zeros(x.size(0) - at, columns, dtype=rest.dtype)])]


def _by_columns(name, x, weights, groups, dtype):
    weight = weights[0]
    require(
        len(weights) == 1 and x.dim() == 2 and weight.dim() == 2 and x.size(1) == weight.size(0),
        f"{name}: x has shape {list(x.shape)} and weight {[list(w.shape) for w in weights]}; group_type 2 "
        "takes one matrix each, with as many columns of x as rows of weight.",
    )
    _check_total(name, groups, x, 1, "columns")
    if not groups:
        return [x.new_zeros(0, x.size(0), weight.size(1), dtype=dtype)]
    outs, at = [], 0
    for _, count in groups:
        outs.append((wide(x[:, at : at + count]) @ wide(weight[at : at + count])).to(dtype))
        at += count
    return [torch.stack(outs)]


def _grouped_meta(
    x, weight, *, group_list=None, split_item=0, group_type=None, output_dtype=None, **rest
):
    """Sizes follow from x, weight and the number of groups, never from its values."""
    name = "npu_grouped_matmul"
    dtype = _output_dtype(x[0], output_dtype, name)
    pack = 8 if weight[0].dtype == torch.int32 else 1
    columns = weight[0].size(-1) * pack
    if group_list is None or group_type == -1:
        outs = [
            a.new_empty((*a.shape[:-1], w.size(-1) * pack), dtype=dtype) for a, w in zip(x, weight)
        ]
        return (
            outs
            if split_item in (0, 1)
            else [x[0].new_empty((sum(a.size(0) for a in x), columns), dtype=dtype)]
        )
    count = len(group_list) if isinstance(group_list, (list, tuple)) else group_list.size(0)
    if group_type == 2:
        return [x[0].new_empty((count, x[0].size(0), columns), dtype=dtype)]
    if split_item in (0, 1):
        unsupported(
            f"{name}: sizes of split_item {split_item} depend on group_list's values; use 2 or 3."
        )
    return [x[0].new_empty((x[0].size(0), columns), dtype=dtype)]


@implements("npu_grouped_matmul", meta=_grouped_meta)
def npu_grouped_matmul(
    x, weight, *, bias=None, scale=None, offset=None, antiquant_scale=None, antiquant_offset=None,
    per_token_scale=None, group_list=None, activation_input=None, activation_quant_scale=None,
    activation_quant_offset=None, split_item=0, group_type=None, group_list_type=0, act_type=0,
    tuning_config=None, output_dtype=None, x_dtype=None, weight_dtype=None, scale_dtype=None,
    per_token_scale_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul"
    require(group_type is not None, f"{name}: Requires manual passing group_type, current is None.")
    groups = None if group_list is None else _bounds(group_list, group_list_type, name)
    dtype = _output_dtype(x[0] if x else torch.empty(0), output_dtype, name)
    return _grouped(
        name, x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale,
        groups, split_item, group_type, act_type, dtype,
    )  # fmt: skip


@implements("npu_grouped_matmul.List")
def npu_grouped_matmul_list(
    x, weight, *, bias=None, scale=None, offset=None, antiquant_scale=None, antiquant_offset=None,
    per_token_scale=None, group_list=None, activation_input=None, activation_quant_scale=None,
    activation_quant_offset=None, split_item=0, group_type=None, group_list_type=0, act_type=0,
    output_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul"
    require(
        group_type is None,
        f"{name}: group_type is {group_type}; with group_list as a list of numbers leave it out.",
    )
    dtype = _output_dtype(x[0] if x else torch.empty(0), output_dtype, name)
    kind = -1 if group_list is None else 0
    groups = None if group_list is None else _bounds(group_list, group_list_type, name)
    return _grouped(
        name, x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale,
        groups, split_item, kind, act_type, dtype,
    )  # fmt: skip


def _accumulated(out, x, weight, group_list, transpose_x, transpose_weight, group_type, kind):
    name = "npu_grouped_matmul_add_"
    require(group_type == 2, f"{name}: group_type is {group_type}; allowed: 2.")
    require(
        transpose_x and not transpose_weight,
        f"{name}: allowed: transpose_x True, transpose_weight False.",
    )
    require(
        x.dim() == 2 and weight.dim() == 2 and x.size(0) == weight.size(0),
        f"{name}: x has shape {list(x.shape)} and weight {list(weight.shape)}; both are matrices with as "
        "many rows.",
    )
    groups = _bounds(group_list, kind, name)
    _check_total(name, groups, x, 0, "rows")
    sizes = len(groups) * x.size(1) * weight.size(1)
    require(
        out.numel() == sizes,
        f"{name}: the first argument has {out.numel()} elements; {len(groups)} groups of "
        f"{x.size(1)} x {weight.size(1)} need {sizes}.",
    )
    sums, at = [], 0
    for _, count in groups:
        rows = slice(at, at + count)
        sums.append(wide(x[rows]).t() @ wide(weight[rows]))
        at += count
    return out + torch.stack(sums).reshape(out.shape).to(out.dtype)


def _same(input, *args, **kwargs):
    return torch.empty_like(input)


@implements("npu_grouped_matmul_add", meta=_same)
def npu_grouped_matmul_add(
    input,
    x,
    weight,
    group_list,
    *,
    transpose_x=True,
    transpose_weight=False,
    group_type=2,
    group_list_type=0,
):
    return _accumulated(
        input, x, weight, group_list, transpose_x, transpose_weight, group_type, group_list_type
    )


# Made of an operator that writes nothing: compilers refuse one they cannot see into that returns its argument.
@implements("npu_grouped_matmul_add_")
def npu_grouped_matmul_add_(
    input,
    x,
    weight,
    group_list,
    *,
    transpose_x=True,
    transpose_weight=False,
    group_type=2,
    group_list_type=0,
):
    made = torch.ops.npu.npu_grouped_matmul_add(
        input,
        x,
        weight,
        group_list,
        transpose_x=transpose_x,
        transpose_weight=transpose_weight,
        group_type=group_type,
        group_list_type=group_list_type,
    )
    return input.copy_(made)


def whole_numbers(x):
    """Integers as float64, which holds their products exactly; int4 packed in int32 spread out."""
    return (unpack_int4(x) if x.dtype == torch.int32 else x).double()


def _grouped_product(name, x1, x2, a, b, scale, offset, pertoken_scale, group_sizes):
    """A scale for each group of rows of x2. Of int4 by int4, offset is taken off the weights. Of int8 by
    int4, the chip splits x1 into 16 high + (low - 8), so that offset holds 8 times the scaled weights."""
    require(
        x2.dtype == torch.int32 and a.dim() == b.dim() == 2,
        f"{name}: group_sizes goes with matrices x1 and x2, and int4 packed in int32 for x2; they are "
        f"{x1.dtype} {list(x1.shape)} and {x2.dtype} {list(x2.shape)}.",
    )
    sizes = list(group_sizes or ())
    require(
        len(sizes) == 3 and all(0 <= n <= 65535 for n in sizes) and sizes[2] > 0,
        f"{name}: group_sizes is {sizes}; allowed: three numbers from 0 to 65535, the last one the rows "
        "of a group.",
        "VALUE",
    )
    (rows, depth), columns, size = a.shape, b.size(-1), sizes[2]
    groups = -(-depth // size)
    both_int4 = x1.dtype == torch.int32
    allowed = {"scale": (scale, [groups, columns]), "pertoken_scale": (pertoken_scale, [rows, 1])}
    allowed["offset"] = (offset, [groups, columns] if both_int4 else [columns])
    for what, (x, shape) in allowed.items():
        optional = what == "offset" and not both_int4
        require(
            (optional and x is None) or (x is not None and list(x.shape) == shape),
            f"{name}: {what} has shape {x if x is None else list(x.shape)}; with group_sizes {sizes} "
            f"allowed: {shape}.",
        )

    def of_rows(x):
        return x.double().repeat_interleave(size, 0)[:depth]

    factors = of_rows(scale_of(scale))
    if both_int4:
        y = a @ ((b - of_rows(offset)) * factors)
    else:
        y = (a - 8) @ (b * factors)
        y = y if offset is None else y + offset.double()
    return y * pertoken_scale.double()


@implements("npu_quant_matmul")
def npu_quant_matmul(
    x1, x2, scale, *, offset=None, pertoken_scale=None, bias=None, output_dtype=None, x1_dtype=None,
    x2_dtype=None, pertoken_scale_dtype=None, scale_dtype=None, group_sizes=None, y_scale=None,
):  # fmt: skip
    name = "npu_quant_matmul"
    refuse_given(name, y_scale=y_scale)
    for what, x in (("x1", x1), ("x2", x2)):
        require(
            x.dtype in (torch.int8, torch.int32),
            f"{name}: {what} is {x.dtype}; allowed: int8, int4 packed in int32.",
            "TYPE",
        )
    a, b = whole_numbers(x1), whole_numbers(x2)
    require(
        a.size(-1) == b.size(-2),
        f"{name}: x1 {list(x1.shape)} and x2 {list(x2.shape)} do not fit: {a.size(-1)} is not {b.size(-2)}.",
    )
    if scale.dim() == 2 or any(group_sizes or ()):
        refuse_given(f"{name} with group_sizes", bias=bias)
        y = _grouped_product(name, x1, x2, a, b, scale, offset, pertoken_scale, group_sizes)
        return y.to(dtype_of(output_dtype, torch.float16, name, "output_dtype"))
    columns, rows = b.size(-1), a.size(-2)
    for what, x, size in (("scale", scale, columns), ("pertoken_scale", pertoken_scale, rows)):
        require(
            x is None or (x.dim() <= 1 and x.numel() in (1, size)),
            f"{name}: {what} has shape {x if x is None else list(x.shape)}; allowed: [1] or [{size}].",
        )
    y = a @ b
    if bias is not None and not bias.is_floating_point():
        y = y + bias.double()
    y = y * scale_of(scale).double()
    if pertoken_scale is not None:
        y = y * pertoken_scale.double().unsqueeze(-1)
    if bias is not None and bias.is_floating_point():
        y = y + bias.double()
    dtype = dtype_of(output_dtype, torch.int8, name, "output_dtype")
    if dtype == torch.int8:
        y = y if offset is None else y + offset.double()
        return torch.clamp(torch.round(y), -128, 127).to(torch.int8)
    return y.to(dtype)


@implements("npu_weight_quant_batchmatmul")
def npu_weight_quant_batchmatmul(
    x, weight, antiquant_scale, antiquant_offset=None, quant_scale=None, quant_offset=None,
    bias=None, antiquant_group_size=0, inner_precise=0, weight_dtype=None,
):  # fmt: skip
    name = "npu_weight_quant_batchmatmul"
    require(weight.dim() == 2, f"{name}: weight has {weight.dim()} dimensions; allowed: 2.")
    if weight.dtype == torch.int32:
        # Packed along N, or along K where the weight is a transposed view.
        turned = weight.stride(0) == 1 and weight.size(0) * 8 == x.size(-1)
        weight = unpack_int4(weight.t()).t() if turned else unpack_int4(weight)
    require(
        weight.size(0) == x.size(-1),
        f"{name}: x {list(x.shape)} and weight {list(weight.shape)} do not fit.",
    )
    scale, shift = wide(antiquant_scale), antiquant_offset
    group = antiquant_group_size
    if group > 0:
        scale = scale.repeat_interleave(group, 0)[: weight.size(0)]
        shift = None if shift is None else shift.repeat_interleave(group, 0)[: weight.size(0)]
    w = wide(weight)
    w = (w if shift is None else w + wide(shift)) * scale
    y = wide(x) @ w
    y = y if bias is None else y + wide(bias)
    if quant_scale is None:
        return y.to(x.dtype)
    y = y * wide(scale_of(quant_scale))
    y = y if quant_offset is None else y + wide(quant_offset)
    return torch.clamp(torch.round(y), -128, 127).to(torch.int8)


@implements("npu_convert_weight_to_int4pack")
def npu_convert_weight_to_int4pack(weight, inner_k_tiles=0):
    name = "npu_convert_weight_to_int4pack"
    require(
        weight.dtype == torch.int32,
        f"{name}: weight is {weight.dtype}; allowed: torch.int32.",
        "TYPE",
    )
    require(inner_k_tiles == 0, f"{name}: inner_k_tiles is {inner_k_tiles}; allowed: 0.", "VALUE")
    return pack_int4(weight, name)
