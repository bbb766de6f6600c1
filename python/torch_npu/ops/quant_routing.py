# SPDX-License-Identifier: Apache-2.0
"""Products of quantised rows with their experts' weights, added back to the tokens."""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import dimensions, elements, require, shapes, wide
from torch_npu.ops._groups import ends_of, spans
from torch_npu.ops._int4 import unpack_int4
from torch_npu.ops.matmul import scale_of


def _routing_meta(x, w, group_list, *, scale=None, output_bs=0, w_dtype=None, **rest):
    columns = w.size(2)
    if w.dtype == torch.int32:
        columns *= 8
    elif w.dtype in (torch.uint8, torch.float4_e2m1fn_x2):
        fp4 = w.dtype != torch.uint8 or lowp.NUMBERS.get(w_dtype) in lowp.FP4
        columns *= 2 if fp4 else 1
    return x.new_empty((output_bs or x.size(0), columns), dtype=torch.float32)


class _Experts:
    """The numbers of x and the experts' weights, and the product of one expert's rows."""

    def __init__(self, name, x, w, scale, bias, offset, pertoken, x_dtype, w_dtype):
        self.name, self.bias, self.offset = name, bias, offset
        self.mx, self.int4 = lowp.is_mx(scale), w.dtype == torch.int32
        if x.dtype == torch.int8:
            require(
                w.dtype in (torch.int8, torch.int32),
                f"{name}: w is {w.dtype}; with int8 x allowed: int8, int4 packed in int32.",
                "TYPE",
            )
            # float64 holds the integers' products exactly.
            self.x, self.w, self.kind = x.double(), w, None
        else:
            allowed = (*lowp.FP8, *lowp.FP4)
            self.x = lowp.decode(x, lowp.kind_of_tensor(x, x_dtype, name, "x", allowed))
            self.w, self.kind = w, lowp.kind_of_tensor(w, w_dtype, name, "w", allowed)
            require(self.mx, f"{name}: scale must hold e8m0 bytes for x of {x.dtype}.", "TYPE")
        rows, self.depth = self.x.shape
        self.columns = self.weight(0).size(1) if w.size(0) else 0
        require(
            w.size(0) == 0 or self.weight(0).size(0) == self.depth,
            f"{name}: x has {self.depth} columns and w shape {list(w.shape)}; w's second size must be the same.",
        )
        require(scale is not None, f"{name}: scale must be given.")
        self.scale = scale if scale.dtype != torch.int64 else scale_of(scale)
        self._check_scale(w.size(0), rows, pertoken)
        self.pertoken = None
        if pertoken is not None and self.mx:
            self.x = self.x * lowp.mx_factor(pertoken, 1, self.depth)
        elif pertoken is not None:
            self.pertoken = wide(pertoken).reshape(-1, 1)

    def _check_scale(self, experts: int, rows: int, pertoken) -> None:
        name, pairs = self.name, -(-self.depth // 64)
        shapes(name, bias=(self.bias, (experts, self.columns)))
        if self.mx:
            lowp.check_scale(self.scale, name, "scale", [experts, pairs, self.columns, 2])
            require(pertoken is not None, f"{name}: pertoken_scale must be given with an MX scale.")
            lowp.check_scale(pertoken, name, "pertoken_scale", [rows, pairs, 2])
            return
        elements(name, (rows,), pertoken_scale=pertoken)
        if not self.int4:
            elements(name, (experts * self.columns,), scale=self.scale)
            return
        parts = self.scale.size(1) if self.scale.dim() == 3 else 1
        require(
            self.scale.numel() == experts * parts * self.columns
            and parts > 0
            and self.depth % parts == 0,
            f"{name}: scale has shape {list(self.scale.shape)}; allowed: [{experts}, parts of {self.depth}, "
            f"{self.columns}].",
        )
        shapes(name, offset=(self.offset, (experts, parts, self.columns)))

    def weight(self, g: int):
        if self.int4:
            return unpack_int4(self.w[g]).double()
        return self.w[g].double() if self.kind is None else lowp.decode(self.w[g], self.kind)

    def product(self, g: int, rows: slice):
        x, w = self.x[rows], self.weight(g)
        if self.mx:
            y = x @ (w * lowp.mx_factor(self.scale[g], 0, self.depth))
        elif self.int4:
            # x is shifted by 8, which the bias corrects.
            parts = self.scale[g].reshape(-1, 1, self.columns).double()
            split = lambda t: t.unflatten(1, (parts.size(0), -1)).transpose(0, 1)  # noqa: E731
            pieces = split(x - 8) @ w.unflatten(0, (parts.size(0), -1))
            y = (pieces * parts).sum(0)
            if self.offset is not None:
                y = y + split(x).sum(2).t() @ self.offset[g].double()
            y = y if self.bias is None else y + self.bias[g].double()
        else:
            y = x @ w * self.scale[g].double().reshape(1, -1)
        y = y if self.pertoken is None else y * self.pertoken[rows].to(y.dtype)
        if self.bias is not None and not self.int4:
            y = y + self.bias[g].to(y.dtype)
        return y.float()


@implements("npu_grouped_matmul_finalize_routing", meta=_routing_meta)
def npu_grouped_matmul_finalize_routing(
    x, w, group_list, *, scale=None, bias=None, offset=None, pertoken_scale=None, shared_input=None,
    logit=None, row_index=None, dtype=None, shared_input_weight=1.0, shared_input_offset=0,
    output_bs=0, group_list_type=1, tuning_config=None, x_dtype=None, w_dtype=None,
    scale_dtype=None, pertoken_scale_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul_finalize_routing"
    require(dtype in (None, torch.float32), f"{name}: dtype is {dtype}; allowed: float32.", "TYPE")
    dimensions(name, 2, x=x)
    dimensions(name, 3, w=w)
    rows, count = x.size(0), output_bs or x.size(0)
    shapes(
        name,
        group_list=(group_list, (w.size(0),)),
        logit=(logit, (rows,)),
        row_index=(row_index, (rows,)),
    )
    ends = ends_of(group_list, group_list_type, rows, name)
    experts = _Experts(name, x, w, scale, bias, offset, pertoken_scale, x_dtype, w_dtype)
    used = spans(ends)
    total = used[-1][1] if used else 0
    index = torch.arange(rows, device=x.device) if row_index is None else row_index.to(torch.int64)
    index = index[:total]
    require(
        total == 0 or 0 <= int(index.min()) <= int(index.max()) < count,
        f"{name}: row_index is {index.tolist()}; allowed: 0 to {count - 1}.",
        "VALUE",
    )
    y = x.new_zeros(count, experts.columns, dtype=torch.float32)
    if shared_input is not None:
        end = shared_input_offset + shared_input.size(0)
        require(
            shared_input_offset >= 0 and end <= count and shared_input.size(1) == experts.columns,
            f"{name}: shared_input has shape {list(shared_input.shape)} and shared_input_offset is "
            f"{shared_input_offset}; the result has shape {[count, experts.columns]}.",
        )
        y[shared_input_offset:end] = shared_input.float() * shared_input_weight
    products = [experts.product(g, slice(a, b)) for g, (a, b) in enumerate(used)]
    rows_out = torch.cat(products)
    if logit is not None:
        rows_out = rows_out * logit[:total].float()[:, None]
    return y.index_add(0, index, rows_out)
