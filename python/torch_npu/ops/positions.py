# SPDX-License-Identifier: Apache-2.0
"""Writes at positions, strided slices and ranges."""

import torch

from torch_npu.ops import cache, implements
from torch_npu.ops._check import dtype_of, require, unsupported, wide


@implements("_npu_index_add")
def _npu_index_add(input, index, source, *, alpha=1):
    return input.index_add(0, index, source, alpha=alpha)


@implements("_npu_index_add_")
def _npu_index_add_(input, index, source, *, alpha=1):
    return input.index_add_(0, index, source, alpha=alpha)


@implements("npu_scatter")
def npu_scatter(input, indices, updates, dim):
    """`indices` and `updates` lack the dimension."""
    require(
        -input.dim() <= dim < input.dim(),
        f"npu_scatter: dim is {dim}; the input has {input.dim()} dimensions.",
        "VALUE",
    )
    require(
        indices.shape == updates.shape and indices.dim() == input.dim() - 1,
        f"npu_scatter: indices has shape {list(indices.shape)} and updates {list(updates.shape)}; both must "
        f"be the same, of one dimension less than the input's {list(input.shape)}.",
    )
    at = dim % input.dim()
    return input.scatter(at, indices.unsqueeze(at).to(torch.int64), updates.unsqueeze(at))


def _check_list(name, tensors, indices, updates, reduce) -> None:
    require(reduce == "update", f"{name}: reduce is {reduce}; allowed: update.", "VALUE")
    require(
        indices.dim() in (1, 2) and indices.size(0) == len(tensors) == updates.size(0),
        f"{name}: {len(tensors)} tensors, {indices.size(0)} indices and {updates.size(0)} updates; give as many.",
    )


def _list_numbers(indices, mask, count):
    starts = (indices if indices.dim() == 1 else indices[:, 0]).tolist()
    return starts, [True] * count if mask is None else [bool(m) for m in mask.tolist()]


def _list_meta(input, indices, updates, mask=None, reduce="update", axis=-2):
    _check_list("npu_scatter_list", input, indices, updates, reduce)
    return [torch.empty_like(x) for x in input]


@implements("npu_scatter_list", meta=_list_meta)
def npu_scatter_list(input, indices, updates, mask=None, reduce="update", axis=-2):
    outs = [x.clone() for x in input]
    npu_scatter_list_(outs, indices, updates, mask, reduce, axis)
    return outs


@implements("npu_scatter_list_", meta=lambda *args, **kwargs: None)
def npu_scatter_list_(input, indices, updates, mask=None, reduce="update", axis=-2):
    """Writes updates[i] into tensor i, from position indices[i] of the axis on."""
    name = "npu_scatter_list_"
    _check_list(name, input, indices, updates, reduce)
    starts, wanted = _list_numbers(indices, mask, len(input))
    for x, start, update, keep in zip(input, starts, updates, wanted):
        size = update.size(axis)
        require(
            0 <= start <= x.size(axis) - size,
            f"{name}: position {start} and {size} updates leave the tensor's size {x.size(axis)}.",
            "VALUE",
        )
        if keep:
            x.narrow(axis, start, size).copy_(update)


def _quantised(name, updates, scales, zero_points, quant_axis, dst_type):
    kind = dtype_of(dst_type, torch.int8, name)
    require(kind == torch.int8, f"{name}: dst_type is {kind}; allowed: int8.", "TYPE")
    require(
        quant_axis % updates.dim() == updates.dim() - 1,
        f"{name}: quant_axis is {quant_axis}; allowed: -1.",
        "VALUE",
    )
    y = wide(updates) / wide(scales)
    y = y if zero_points is None else y + wide(zero_points)
    return torch.clamp(torch.round(y), -128, 127).to(torch.int8)


@implements("npu_quant_scatter")
def npu_quant_scatter(
    input, indices, updates, quant_scales, quant_zero_points=None, axis=-2, quant_axis=-1,
    reduce="update", dst_type=None, round_mode="rint",
):  # fmt: skip
    name = "npu_quant_scatter"
    require(reduce == "update", f"{name}: reduce is {reduce}; allowed: update.", "VALUE")
    values = _quantised(name, updates, quant_scales, quant_zero_points, quant_axis, dst_type)
    return cache.scatter_update(input, indices, values, axis)


@implements("npu_quant_scatter_")
def npu_quant_scatter_(
    input, indices, updates, quant_scales, quant_zero_points=None, axis=-2, quant_axis=-1,
    reduce="update", dst_type=None, round_mode="rint",
):  # fmt: skip
    name = "npu_quant_scatter_"
    require(reduce == "update", f"{name}: reduce is {reduce}; allowed: update.", "VALUE")
    values = _quantised(name, updates, quant_scales, quant_zero_points, quant_axis, dst_type)
    return cache.scatter_update_(input, indices, values, axis)


@implements("npu_scatter_pa_cache.value")
def npu_scatter_pa_cache(
    key, slot_mapping, *, compress_lens=None, compress_seq_offsets=None, seq_lens=None, key_cache
):
    """Keys (tokens, heads, size) into slots of a cache (blocks, block_size, heads, size)."""
    name = "npu_scatter_pa_cache"
    cache._check_slots(
        name, key, slot_mapping, compress_lens=compress_lens,
        compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens,
    )  # fmt: skip
    cache._put(key_cache, key, slot_mapping, "Norm", name)
    return key_cache


def _sliced(name, x, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis, shrink):
    require(
        len(begin) == len(end) == len(strides),
        f"{name}: begin, end and strides have {len(begin)}, {len(end)} and {len(strides)} numbers; give as many.",
    )
    if ellipsis_mask or new_axis:
        unsupported(f"{name}: ellipsis_mask and new_axis_mask are not supported here; allowed: 0.")
    require(
        len(begin) <= x.dim(), f"{name}: {len(begin)} numbers for {x.dim()} dimensions.", "VALUE"
    )
    out, gone = x, []
    for d, (first, last, step) in enumerate(zip(begin, end, strides)):
        require(step > 0, f"{name}: strides is {list(strides)}; they must be positive.", "VALUE")
        if shrink >> d & 1:
            out = out.narrow(d, first % x.size(d), 1)
            gone.append(d)
            continue
        first = 0 if begin_mask >> d & 1 else first
        last = x.size(d) if end_mask >> d & 1 else last
        picked = range(*slice(first, last, step).indices(x.size(d)))
        at = torch.arange(picked.start, max(picked.stop, picked.start), step, device=x.device)
        out = out.index_select(d, at)
    for d in reversed(gone):
        out = out.squeeze(d)
    return out.contiguous()


@implements("npu_indexing")
def npu_indexing(
    input, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0,
    shrink_axis_mask=0,
):  # fmt: skip
    return _sliced(
        "npu_indexing", input, begin, end, strides, begin_mask, end_mask, ellipsis_mask,
        new_axis_mask, shrink_axis_mask,
    )  # fmt: skip


def _indexing_out(
    input, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0,
    shrink_axis_mask=0, *, out,
):  # fmt: skip
    found = _sliced(
        "npu_indexing", input, begin, end, strides, begin_mask, end_mask, ellipsis_mask,
        new_axis_mask, shrink_axis_mask,
    )  # fmt: skip
    require(
        out.shape == found.shape,
        f"npu_indexing: out has shape {list(out.shape)}; the slice has {list(found.shape)}.",
    )
    return out.copy_(found)


@implements("npu_indexing.out")
def npu_indexing_out(input, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0, *, out):  # fmt: skip
    return _indexing_out(input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask, out=out)  # fmt: skip


@implements("npu_indexing_trans_contiguous.out")
def npu_indexing_trans_contiguous_out(input, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0, *, out):  # fmt: skip
    return _indexing_out(input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask, out=out)  # fmt: skip


@implements("npu_masked_fill_range")
def npu_masked_fill_range(input, start, end, value, axis=-1):
    """Row i of dimension 0: value[d] in [start[d, i], end[d, i]) of the axis, for each d in turn."""
    name = "npu_masked_fill_range"
    at = axis % input.dim()
    require(
        input.dim() >= 2 and at == input.dim() - 1,
        f"{name}: axis is {axis} of {input.dim()} dimensions; allowed: the last of two or more.",
        "VALUE",
    )
    require(
        start.dim() == 2 and start.shape == end.shape and start.size(0) == value.numel(),
        f"{name}: start has shape {list(start.shape)}, end {list(end.shape)} and value {value.numel()} numbers; "
        "allowed: (n, rows) twice and n numbers.",
    )
    require(
        start.size(1) <= input.size(0),
        f"{name}: start has {start.size(1)} rows, the input {input.size(0)}.",
    )
    columns = torch.arange(input.size(at), device=input.device)
    rows, out = start.size(1), input.clone()
    head, rest = out[:rows], out[rows:]
    shape = (rows,) + (1,) * (input.dim() - 2) + (input.size(at),)
    for d in range(start.size(0)):
        inside = (columns >= start[d][:, None]) & (columns < end[d][:, None])
        head = torch.where(inside.view(shape), value.flatten()[d].to(input.dtype), head)
    return torch.cat((head, rest))
