# SPDX-License-Identifier: Apache-2.0
"""Grouped products of experts on many ranks: rows are sent to their experts before, or back after.

Counts are rank-major: element rank · e + expert, with e experts on each rank.
"""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require, same_dtype, shapes
from torch_npu.ops._exchange import (
    check_counts,
    group_of,
    per_rank,
    send_rows,
    to_experts,
    to_ranks,
)
from torch_npu.ops._operands import (
    columns_of,
    numbers,
    one_number,
    output_dtype,
    weight_columns,
    weight_numbers,
)


class _Call:
    """The part common to four operators: counts, experts, the optional second product."""

    def __init__(self, name, x, weight, world_size, send, receive, there: bool, options):
        self.name, self.experts, self.options = name, weight.size(0), options
        refuse_given(
            name, send_counts_tensor=options.get("send_counts_tensor"),
            recv_counts_tensor=options.get("recv_counts_tensor"),
        )  # fmt: skip
        require(
            weight.dim() == 3,
            f"{name}: gmm_weight has {weight.dim()} dimensions; allowed: 3, (experts, H, N).",
        )
        require(x.dim() == 2, f"{name}: gmm_x has {x.dim()} dimensions; allowed: 2.")
        require(world_size > 0, f"{name}: world_size should not be 0.", "VALUE")
        for what, counts in (("send_counts", send), ("recv_counts", receive)):
            require(
                len(counts) == self.experts * world_size and all(n >= 0 for n in counts),
                f"{name}: {what} is {list(counts)}; allowed: {self.experts * world_size} counts, one for each of "
                f"{world_size} ranks and {self.experts} experts on each.",
                "VALUE",
            )
        self.send, self.receive = list(send), list(receive)
        rows = sum(send)
        require(
            x.size(0) == rows,
            f"{name}: gmm_x has {x.size(0)} rows; send_counts add up to {rows}. They must be the same.",
        )
        mm = options.get("mm_x"), options.get("mm_weight")
        require(
            (mm[0] is None) == (mm[1] is None), f"{name}: mm_x and mm_weight are given together."
        )
        self.counts = (
            self.receive if there else self.send
        )  # of the rows that stand expert by expert

    def moved(self, x, group):
        """Rows sent; those received stand rank by rank."""
        return send_rows(
            x, per_rank(self.send, self.experts), per_rank(self.receive, self.experts), group
        )

    def groups(self) -> list[int]:
        return [sum(self.counts[i :: self.experts]) for i in range(self.experts)]

    def agreed_group(self, hcom, world_size, device):
        group = group_of(self.name, hcom, world_size)
        check_counts(self.name, self.send, self.receive, group, device)
        return group


def _grouped(a, b, groups):
    return torch.cat([part @ w for part, w in zip(a.split(groups), b)])


def _turned(weight, trans: bool):
    return weight.transpose(-1, -2) if trans and weight is not None else weight


def _plain(name, x, weight, options) -> None:
    same_dtype(name, gmm_x=x, gmm_weight=weight)
    require(
        x.size(1) == weight.size(1),
        f"{name}: gmm_x has {x.size(1)} columns and gmm_weight {weight.size(1)} rows; they must be the same.",
    )
    mm_x, mm_weight = options.get("mm_x"), options.get("mm_weight")
    if mm_x is not None:
        same_dtype(name, mm_x=mm_x, mm_weight=mm_weight)
        require(
            mm_x.dim() == mm_weight.dim() == 2 and mm_x.size(1) == mm_weight.size(0),
            f"{name}: mm_x has shape {list(mm_x.shape)} and mm_weight {list(mm_weight.shape)}; the columns of the first "
            "are the rows of the second.",
        )


def _prepared(name, x, weight, world_size, send, receive, there, options):
    weight = _turned(weight, options.get("trans_gmm_weight", False))
    options["mm_weight"] = _turned(options.get("mm_weight"), options.get("trans_mm_weight", False))
    call = _Call(name, x, weight, world_size, send, receive, there, options)
    _plain(name, x, weight, options)
    return call, weight


def _second(options):
    return None if options.get("mm_x") is None else options["mm_x"] @ options["mm_weight"]


def _there_meta(gmm_x, gmm_weight, hcom, ep_world_size, send_counts, recv_counts, **options):
    call, weight = _prepared(
        "npu_alltoallv_gmm", gmm_x, gmm_weight, ep_world_size, send_counts, recv_counts, True, options
    )  # fmt: skip
    rows = sum(call.receive)
    moved = gmm_x.new_empty(rows, gmm_x.size(1)) if options.get("permute_out_flag") else None
    return gmm_x.new_empty(rows, weight.size(2)), _second(options), moved


@implements("npu_alltoallv_gmm", meta=_there_meta)
def npu_alltoallv_gmm(gmm_x, gmm_weight, hcom, ep_world_size, send_counts, recv_counts, **options):
    """(rows of this rank's experts times their weights, mm_x · mm_weight, the rows)"""
    name = "npu_alltoallv_gmm"
    call, weight = _prepared(
        name, gmm_x, gmm_weight, ep_world_size, send_counts, recv_counts, True, options
    )
    group = call.agreed_group(hcom, ep_world_size, gmm_x.device)
    rows = to_experts(call.moved(gmm_x, group), call.receive, call.experts)
    y = _grouped(rows, weight, call.groups())
    return y, _second(options), rows if options.get("permute_out_flag") else None


def _back_meta(gmm_x, gmm_weight, hcom, ep_world_size, send_counts, recv_counts, **options):
    call, weight = _prepared(
        "npu_gmm_alltoallv", gmm_x, gmm_weight, ep_world_size, send_counts, recv_counts, False, options
    )  # fmt: skip
    return gmm_x.new_empty(sum(call.receive), weight.size(2)), _second(options)


@implements("npu_gmm_alltoallv", meta=_back_meta)
def npu_gmm_alltoallv(gmm_x, gmm_weight, hcom, ep_world_size, send_counts, recv_counts, **options):
    """gmm_x stands expert by expert; the products go back to the ranks of their rows."""
    name = "npu_gmm_alltoallv"
    call, weight = _prepared(
        name, gmm_x, gmm_weight, ep_world_size, send_counts, recv_counts, False, options
    )
    group = call.agreed_group(hcom, ep_world_size, gmm_x.device)
    y = _grouped(gmm_x, weight, call.groups())
    return call.moved(to_ranks(y, call.send, call.experts), group), _second(options)


# ---- quantised --------------------------------------------------------------------------


def _quant_columns(name, what, x, weight, scale, weight_scale, options) -> int:
    """The columns of one product, once its operands and scales fit."""
    depth = columns_of(x, options.get(f"{what}_x_dtype"))
    number = options.get(f"{what}_weight_dtype")
    columns = weight_columns(name, f"{what}_weight", weight, weight_scale, depth, number)
    if lowp.is_mx(weight_scale):
        shapes(name, **{f"{what}_x_scale": (scale, (x.size(0), -(-depth // 64), 2))})
        lowp.check_scale(scale, name, f"{what}_x_scale")
    else:
        one_number(name, **{f"{what}_x_scale": scale, f"{what}_weight_scale": weight_scale})
    return columns


def _quant_call(
    name, x, weight, x_scale, weight_scale, world_size, send, receive, there, dtype, options
):
    """(what the calls share, columns of both products, their dtypes)"""
    refuse_given(
        name, comm_quant_scale=options.get("comm_quant_scale"), comm_quant_dtype=options.get("comm_quant_dtype")
    )  # fmt: skip
    require(
        options.get("comm_quant_mode") in (None, 0),
        f"{name}: comm_quant_mode is {options.get('comm_quant_mode')}; allowed: 0, which is none.",
        "VALUE",
    )
    call = _Call(name, x, weight, world_size, send, receive, there, options)
    columns = [_quant_columns(name, "gmm", x, weight, x_scale, weight_scale, options)]
    dtypes = [output_dtype(name, dtype, torch.bfloat16, "gmm_y_dtype")]
    if options.get("mm_x") is not None:
        mm = [options.get(f"mm_{k}") for k in ("x", "weight", "x_scale", "weight_scale")]
        columns.append(_quant_columns(name, "mm", *mm, options))
        dtypes.append(output_dtype(name, options.get("mm_y_dtype"), dtypes[0], "mm_y_dtype"))
    return call, columns, dtypes


def _left(name, what, x, scale, options):
    y = numbers(name, f"{what}_x", x, options.get(f"{what}_x_dtype"))
    return (
        y * lowp.mx_factor(scale, 1, y.size(1))
        if lowp.is_mx(scale)
        else y * scale.float().reshape(())
    )


def _right(name, what, weight, scale, depth, options):
    w = weight_numbers(
        name, f"{what}_weight", weight, scale, depth, options.get(f"{what}_weight_dtype")
    )
    return w if lowp.is_mx(scale) else w * scale.float().reshape(())


def _quant_second(name, options, dtypes):
    if options.get("mm_x") is None:
        return None
    a = _left(name, "mm", options["mm_x"], options["mm_x_scale"], options)
    b = _right(name, "mm", options["mm_weight"], options["mm_weight_scale"], a.size(1), options)
    return (a @ b).to(dtypes[1])


def _quant_second_meta(x, options, columns, dtypes):
    if len(columns) < 2:
        return None
    return x.new_empty(options["mm_x"].size(0), columns[1], dtype=dtypes[1])


def _quant_there_meta(gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, hcom, ep_world_size, send_counts, recv_counts,
                      gmm_y_dtype, **options):  # fmt: skip
    call, columns, dtypes = _quant_call(
        "npu_alltoallv_quant_gmm", gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, ep_world_size, send_counts,
        recv_counts, True, gmm_y_dtype, options,
    )  # fmt: skip
    rows = sum(call.receive)
    moved = gmm_x.new_empty(rows, gmm_x.size(1)) if options.get("permute_out_flag") else None
    y = gmm_x.new_empty(rows, columns[0], dtype=dtypes[0])
    return y, _quant_second_meta(gmm_x, options, columns, dtypes), moved


@implements("npu_alltoallv_quant_gmm", meta=_quant_there_meta)
def npu_alltoallv_quant_gmm(gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, hcom, ep_world_size, send_counts, recv_counts,
                            gmm_y_dtype, **options):  # fmt: skip
    """MX scales travel with their rows; the third result are the quantised rows."""
    name = "npu_alltoallv_quant_gmm"
    call, _, dtypes = _quant_call(
        name, gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, ep_world_size, send_counts, recv_counts, True,
        gmm_y_dtype, options,
    )  # fmt: skip
    group = call.agreed_group(hcom, ep_world_size, gmm_x.device)
    rows = to_experts(call.moved(gmm_x, group), call.receive, call.experts)
    scale = gmm_x_scale
    if lowp.is_mx(scale):
        scale = to_experts(call.moved(scale, group), call.receive, call.experts)
    a = _left(name, "gmm", rows, scale, options)
    b = _right(name, "gmm", gmm_weight, gmm_weight_scale, a.size(1), options)
    y = _grouped(a, b, call.groups()).to(dtypes[0])
    return (
        y,
        _quant_second(name, options, dtypes),
        rows if options.get("permute_out_flag") else None,
    )


def _quant_back_meta(gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, hcom, ep_world_size, send_counts, recv_counts,
                     gmm_y_dtype, **options):  # fmt: skip
    call, columns, dtypes = _quant_call(
        "npu_quant_gmm_alltoallv", gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, ep_world_size, send_counts,
        recv_counts, False, gmm_y_dtype, options,
    )  # fmt: skip
    y = gmm_x.new_empty(sum(call.receive), columns[0], dtype=dtypes[0])
    return y, _quant_second_meta(gmm_x, options, columns, dtypes)


@implements("npu_quant_gmm_alltoallv", meta=_quant_back_meta)
def npu_quant_gmm_alltoallv(gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, hcom, ep_world_size, send_counts, recv_counts,
                            gmm_y_dtype, **options):  # fmt: skip
    name = "npu_quant_gmm_alltoallv"
    call, _, dtypes = _quant_call(
        name, gmm_x, gmm_weight, gmm_x_scale, gmm_weight_scale, ep_world_size, send_counts, recv_counts, False,
        gmm_y_dtype, options,
    )  # fmt: skip
    group = call.agreed_group(hcom, ep_world_size, gmm_x.device)
    a = _left(name, "gmm", gmm_x, gmm_x_scale, options)
    b = _right(name, "gmm", gmm_weight, gmm_weight_scale, a.size(1), options)
    y = _grouped(a, b, call.groups()).to(dtypes[0])
    return call.moved(to_ranks(y, call.send, call.experts), group), _quant_second(
        name, options, dtypes
    )
