# SPDX-License-Identifier: Apache-2.0
"""Matrix products with a collective of a process group, which `hcom` names."""

import torch
import torch.distributed as dist

from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require, same_dtype
from torch_npu.ops._exchange import gather_rows, group_of, scatter_sum


def _check(name, x, weight, reduce_op="sum", output_dtype=None, **refused) -> None:
    refuse_given(name, **refused)
    same_dtype(name, x1=x, x2=weight)
    require(
        x.dim() >= 2 and weight.dim() == 2 and x.size(-1) == weight.size(0),
        f"{name}: x1 has shape {list(x.shape)} and x2 {list(weight.shape)}; x2 is a matrix with as many rows "
        "as x1 has columns.",
    )
    require(reduce_op == "sum", f"{name}: reduce_op is {reduce_op}; allowed: sum.")
    require(
        output_dtype in (None, x.dtype),
        f"{name}: output_dtype is {output_dtype}; allowed: {x.dtype}.",
        "TYPE",
    )


def _product(x, weight, bias):
    y = torch.matmul(x, weight)
    return y if bias is None else y + bias


def _gather_meta(input, x2, hcom, world_size, *, gather_output=True, **rest):
    name = "npu_all_gather_base_mm"
    _check(name, input, x2, output_dtype=rest.get("output_dtype"))
    rows = input.size(0) * world_size
    gathered = (rows, input.size(1)) if gather_output else (0,)
    return input.new_empty(rows, x2.size(1)), input.new_empty(gathered)


@implements("npu_all_gather_base_mm", meta=_gather_meta)
def npu_all_gather_base_mm(
    input, x2, hcom, world_size, *, bias=None, x1_scale=None, x2_scale=None, gather_index=0,
    gather_output=True, comm_turn=0, output_dtype=None, comm_mode=None,
):  # fmt: skip
    name = "npu_all_gather_base_mm"
    _check(name, input, x2, output_dtype=output_dtype, x1_scale=x1_scale, x2_scale=x2_scale)
    require(input.dim() == 2, f"{name}: input has {input.dim()} dimensions; allowed: 2.")
    require(gather_index == 0, f"{name}: gather_index is {gather_index}; allowed: 0.", "VALUE")
    group = group_of(name, hcom, world_size)
    gathered = gather_rows(input, group)
    return _product(gathered, x2, bias), gathered if gather_output else input.new_empty(0)


def _scatter_meta(input, x2, hcom, world_size, **rest):
    name = "npu_mm_reduce_scatter_base"
    _check(name, input, x2, output_dtype=rest.get("output_dtype"))
    return input.new_empty(input.size(0) // world_size, x2.size(1))


@implements("npu_mm_reduce_scatter_base", meta=_scatter_meta)
def npu_mm_reduce_scatter_base(
    input, x2, hcom, world_size, *, reduce_op="sum", bias=None, x1_scale=None, x2_scale=None,
    comm_turn=0, output_dtype=None, comm_mode=None,
):  # fmt: skip
    """A bias is added by every rank, before the sum."""
    name = "npu_mm_reduce_scatter_base"
    _check(name, input, x2, reduce_op, output_dtype, x1_scale=x1_scale, x2_scale=x2_scale)
    group = group_of(name, hcom, world_size)
    require(
        input.dim() == 2 and input.size(0) % group.size() == 0,
        f"{name}: input has shape {list(input.shape)}; it is a matrix, and its rows a multiple of {group.size()} "
        "ranks.",
    )
    return scatter_sum(_product(input, x2, bias), group)


def _reduce_meta(x1, x2, hcom, **rest):
    _check("npu_mm_all_reduce_base", x1, x2)
    return x1.new_empty(*x1.shape[:-1], x2.size(1))


@implements("npu_mm_all_reduce_base", meta=_reduce_meta)
def npu_mm_all_reduce_base(
    x1, x2, hcom, *, reduce_op="sum", bias=None, antiquant_scale=None, antiquant_offset=None, x3=None,
    dequant_scale=None, pertoken_scale=None, comm_quant_scale_1=None, comm_quant_scale_2=None,
    antiquant_group_size=0, comm_turn=0, group_sizes=None, y_dtype=None, x1_dtype=None, x2_dtype=None,
    dequant_scale_dtype=None, pertoken_scale_dtype=None, comm_quant_mode=0, comm_mode=None,
):  # fmt: skip
    """bias and x3 are added by every rank, before the sum."""
    name = "npu_mm_all_reduce_base"
    _check(
        name, x1, x2, reduce_op, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset,
        dequant_scale=dequant_scale, pertoken_scale=pertoken_scale, comm_quant_scale_1=comm_quant_scale_1,
        comm_quant_scale_2=comm_quant_scale_2, group_sizes=group_sizes, y_dtype=y_dtype, x1_dtype=x1_dtype,
        x2_dtype=x2_dtype,
    )  # fmt: skip
    group = group_of(name, hcom)
    y = _product(x1, x2, bias)
    y = (y if x3 is None else y + x3).contiguous()
    dist.all_reduce(y, group=group)
    return y


def _barrier_meta(x_ref, group, world_size, **rest):
    return torch.empty_like(x_ref)


@implements("_npu_distribute_barrier", meta=_barrier_meta)
def _npu_distribute_barrier(x_ref, group, world_size, *, time_out=None, elastic_info=None):
    name = "_npu_distribute_barrier"
    refuse_given(name, time_out=time_out, elastic_info=elastic_info)
    dist.barrier(group=group_of(name, group, world_size))
    return x_ref.clone()
