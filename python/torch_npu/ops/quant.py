# SPDX-License-Identifier: Apache-2.0
"""Quantisation: rounded to nearest, ties to even, after the offset; then cut to the integers' range."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import INT4, dtype_of, floating, require, wide
from torch_npu.ops._int4 import pack_int4, unpack_int4

_RANGE = {
    torch.int8: (-128, 127),
    torch.uint8: (0, 255),
    torch.int32: (-(2**31), 2**31 - 1),
    INT4: (-8, 7),
}


def store_integers(y, kind, name: str):
    """Rounded, cut and stored: int4 as eight values an int32."""
    low, high = _RANGE[kind]
    y = torch.clamp(torch.round(y.double() if kind == torch.int32 else y), low, high)
    return pack_int4(y, name) if kind == INT4 else y.to(kind)


def _check_input(name, x, smooth_scales, group_index, quant_mode, dst_type):
    require(x.dim() > 1, f"{name}: Input shape dim should be greater than 1, but got {x.dim()}.")
    modes = ("pertoken", "perchannel", "pertensor")
    require(
        quant_mode in modes,
        f"{name}: quant_mode is {quant_mode}; allowed: {', '.join(modes)}.",
        "VALUE",
    )
    require(
        group_index is None or smooth_scales is not None,
        f"{name}: smooth_scales must be given with group_index.",
    )
    floating(name, input=x, smooth_scales=smooth_scales)
    shape = None if smooth_scales is None else list(smooth_scales.shape)
    wanted = [x.size(-1)] if group_index is None else ["groups", x.size(-1)]
    require(
        shape is None or (len(shape) == len(wanted) and shape[-1] == x.size(-1)),
        f"{name}: smooth_scales has shape {shape}; allowed: {wanted}.",
    )
    kind = dtype_of(dst_type, torch.int8, name)
    require(
        kind in (torch.int8, INT4), f"{name}: dst_type is {dst_type}; allowed: int8, int4.", "TYPE"
    )
    return kind


def _smoothed(x, smooth_scales, group_index):
    y = wide(x)
    if smooth_scales is None:
        return y
    if group_index is None:
        return y * wide(smooth_scales)
    rows = y.flatten(0, -2)
    numbers = torch.arange(rows.size(0), device=x.device)
    # Row i is in the first group whose end is behind it.
    groups = (numbers[:, None] >= group_index[None, :]).sum(1).clamp(max=smooth_scales.size(0) - 1)
    return (rows * wide(smooth_scales).index_select(0, groups)).view_as(y)


def _over(mode: str, y):
    return {"pertoken": [-1], "perchannel": [-2], "pertensor": list(range(y.dim()))}[mode]


def _scale_shape(scale, mode: str):
    if mode == "pertensor":
        return scale.reshape(1).float()
    return scale.squeeze(-1 if mode == "pertoken" else -2).float()


def _nonzero(x):
    return torch.where(x == 0, torch.ones_like(x), x)


@implements("npu_dynamic_quant")
def npu_dynamic_quant(
    input,
    *,
    smooth_scales=None,
    group_index=None,
    dst_type=None,
    quant_mode="pertoken",
    dst_type_max=0.0,
):
    name = "npu_dynamic_quant"
    kind = _check_input(name, input, smooth_scales, group_index, quant_mode, dst_type)
    y = _smoothed(input, smooth_scales, group_index)
    scale = y.abs().amax(_over(quant_mode, y), keepdim=True) / (7 if kind == INT4 else 127)
    return store_integers(y / _nonzero(scale), kind, name), _scale_shape(scale, quant_mode)


@implements("npu_dynamic_quant_asymmetric")
def npu_dynamic_quant_asymmetric(
    input,
    *,
    smooth_scales=None,
    group_index=None,
    dst_type=None,
    quant_mode="pertoken",
    dst_type_max=0.0,
):
    name = "npu_dynamic_quant_asymmetric"
    kind = _check_input(name, input, smooth_scales, group_index, quant_mode, dst_type)
    y = _smoothed(input, smooth_scales, group_index)
    dims = _over(quant_mode, y)
    top, bottom = y.amax(dims, keepdim=True), y.amin(dims, keepdim=True)
    scale = (top - bottom) / (15 if kind == INT4 else 255)
    offset = (7 if kind == INT4 else 127) - top / _nonzero(scale)
    q = store_integers(y / _nonzero(scale) + offset, kind, name)
    return q, _scale_shape(scale, quant_mode), _scale_shape(offset, quant_mode)


def _along(parameter, x, axis: int):
    """A parameter of one number, or of one per element of an axis."""
    if parameter.numel() == 1:
        return wide(parameter).reshape(())
    if parameter.dim() > 1:
        return wide(parameter)
    shape = [1] * x.dim()
    shape[axis] = -1
    return wide(parameter).reshape(shape)


@implements("npu_quantize")
def npu_quantize(input, scales, zero_points, dtype, axis=1, div_mode=True):
    name = "npu_quantize"
    kind = dtype_of(dtype, None, name, "dtype")
    require(
        kind in _RANGE,
        f"{name}: Param (dtype) must be Int8, UInt8, Int32 or int4, but got {dtype}.",
        "TYPE",
    )
    axis = axis if scales.numel() > 1 else -1
    require(
        -input.dim() <= axis < input.dim(),
        f"{name}: axis is {axis}; the input has {input.dim()} dimensions.",
        "VALUE",
    )
    scale = _along(scales, input, axis)
    zero = 0 if zero_points is None else _along(zero_points, input, axis)
    if div_mode:
        # As torch.quantize_per_channel: the zero point is added after rounding.
        return store_integers(torch.round(wide(input) / scale) + zero, kind, name)
    require(
        axis % input.dim() >= input.dim() - 2,
        f"{name}: axis is {axis}; with div_mode False allowed: -1, -2.",
        "VALUE",
    )
    return store_integers(wide(input) * scale + zero, kind, name)


@implements("npu_anti_quant")
def npu_anti_quant(x, scale, *, offset=None, dst_dtype=None, src_dtype=None):
    name = "npu_anti_quant"
    require(
        x.dtype in (torch.int8, torch.int32),
        f"{name}: x is {x.dtype}; allowed: int8, int4 packed in int32.",
        "TYPE",
    )
    kind = dtype_of(dst_dtype, torch.float16, name, "dst_dtype")
    require(
        kind in (torch.float16, torch.bfloat16),
        f"{name}: dst_dtype is {kind}; allowed: float16, bfloat16.",
        "TYPE",
    )
    y = wide(unpack_int4(x) if x.dtype == torch.int32 else x)
    y = y if offset is None else y + wide(offset)
    return (y * wide(scale)).to(kind)


@implements("npu_trans_quant_param")
def npu_trans_quant_param(scale, offset=None, round_mode=0):
    name = "npu_trans_quant_param"
    require(
        scale.dtype == torch.float32,
        f"{name}: scale is {scale.dtype}; allowed: torch.float32.",
        "TYPE",
    )
    require(round_mode == 0, f"{name}: round_mode is {round_mode}; allowed: 0.", "VALUE")
    bits = scale.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFE000
    packed = bits | (1 << 46)
    if offset is None:
        return packed
    shift = torch.clamp(torch.round(offset), -256, 255).to(torch.int64) & 0x1FF
    return packed | (shift << 37)


@implements("npu_group_quant")
def npu_group_quant(x, scale, group_index, *, offset=None, dst_dtype=None):
    """group_index holds the cumulative ends of groups of rows; scale (groups, columns)."""
    name = "npu_group_quant"
    # Ascend's documents name the quantised dtype, results are int8.
    kinds = {
        None: torch.int8,
        torch.int8: torch.int8,
        torch.qint8: torch.int8,
        torch.quint4x2: INT4,
    }
    kind = kinds.get(dst_dtype)
    require(
        kind is not None,
        f"{name}: dst_dtype is {dst_dtype}; allowed: int8, qint8, quint4x2.",
        "TYPE",
    )
    numbers = torch.arange(x.size(0), device=x.device)
    groups = (numbers[:, None] >= group_index[None, :]).sum(1).clamp(max=scale.size(0) - 1)
    y = wide(x) * wide(scale).index_select(0, groups)
    return store_integers(y if offset is None else y + wide(offset), kind, name)


@implements("npu_swiglu_quant")
def npu_swiglu_quant(
    x, *, smooth_scales=None, offsets=None, group_index=None, activate_left=False, quant_mode=0,
    group_list_type=0, dst_type=None,
):  # fmt: skip
    name = "npu_swiglu_quant"
    require(
        quant_mode in (0, 1),
        f"{name}: quant_mode is {quant_mode}; allowed: 0 (static), 1 (dynamic).",
        "VALUE",
    )
    require(
        dst_type in (None, torch.int8),
        f"{name}: dst_type is {dst_type}; allowed: torch.int8.",
        "TYPE",
    )
    require(x.size(-1) % 2 == 0, f"{name}: the last size of x is {x.size(-1)}; it must be even.")
    require(
        quant_mode == 1 or smooth_scales is not None,
        f"{name}: smooth_scales must be given with quant_mode 0.",
    )
    factors = [smooth_scales, offsets if quant_mode == 0 else None]
    if group_index is not None:
        ends = _group_ends(group_index, group_list_type, x, name)
        factors = [_row_of_group(f, ends, x, name, what)
                   for f, what in zip(factors, ("smooth_scales", "offsets"))]  # fmt: skip
    left, right = wide(x).chunk(2, -1)
    y = left * torch.sigmoid(left) * right if activate_left else left * right * torch.sigmoid(right)
    y = y if factors[0] is None else y * wide(factors[0])
    if quant_mode == 0:
        y = y if factors[1] is None else y + wide(factors[1])
        return store_integers(y, torch.int8, name), y.new_empty(
            x.shape[:-1], dtype=torch.float32
        ).zero_()
    top = y.abs().amax(-1, keepdim=True)
    scale = torch.where(top == 0, torch.zeros_like(top), 127 / _nonzero(top))
    return store_integers(y * scale, torch.int8, name), scale.squeeze(-1).float()


def _group_ends(group_index, group_list_type: int, x, name: str):
    """Where each group of rows ends."""
    require(
        group_list_type in (0, 1),
        f"{name}: group_list_type is {group_list_type}; allowed: 0 (where groups end), 1 (rows of each).",
        "VALUE",
    )
    require(
        x.dim() == 2 and group_index.dim() == 1 and group_index.numel() > 0,
        f"{name}: x has {x.dim()} dimensions and group_index shape {list(group_index.shape)}; allowed with groups: 2, and (groups).",
    )
    ends = group_index.to(torch.int64)
    return ends.cumsum(0) if group_list_type == 1 else ends


def _row_of_group(factor, ends, x, name: str, what: str):
    """A factor for each row, that of its group; rows after the last group take the last one's."""
    if factor is None:
        return None
    groups, size = ends.numel(), x.size(-1) // 2
    require(
        list(factor.shape) in ([groups], [groups, 1], [groups, size]),
        f"{name}: {what} has shape {list(factor.shape)}; allowed: ({groups}), ({groups}, {size}).",
    )
    rows = torch.arange(x.size(0), device=x.device)
    group = torch.searchsorted(ends.contiguous(), rows, right=True).clamp(max=groups - 1)
    return factor.reshape(groups, -1).index_select(0, group)


@implements("npu_dequant_bias")
def npu_dequant_bias(x, weight_scale, activation_scale, bias, *, output_dtype=None):
    name = "npu_dequant_bias"
    kind = output_dtype or torch.float16
    require(x.dtype == torch.int32, f"{name}: x is {x.dtype}; allowed: torch.int32.", "TYPE")
    require(
        kind in (torch.float16, torch.bfloat16),
        f"{name}: output_dtype is {kind}; allowed: float16, bfloat16.",
        "TYPE",
    )
    y = x.double()
    late = bias is not None and bias.is_floating_point()
    y = y if bias is None or late else y + bias.double()
    y = y * weight_scale.double()
    y = y if activation_scale is None else y * activation_scale.double().unsqueeze(-1)
    return (y + bias.double() if late else y).to(kind)


def _write_quantised(name, inputs, scales, zero_points, axis, dtype, result):
    """_quantize_per_*_impl: the integers of a plain tensor, written into `result`."""
    kinds = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
    kind = kinds.get(dtype, dtype)
    require(
        kind in kinds.values(),
        f"{name}: dtype is {dtype}; allowed: qint8, quint8, qint32, int8, uint8, int32.",
        "TYPE",
    )
    floating(name, inputs=inputs, scales=scales)
    count = 1 if axis is None else inputs.size(axis)
    for what, x in (("scales", scales), ("zero_points", zero_points)):
        require(
            x.dim() <= 1 and x.numel() == count,
            f"{name}: {what} has shape {list(x.shape)}; allowed: [{count}].",
        )
    require(
        result.dtype == kind and result.shape == inputs.shape,
        f"{name}: result has shape {list(result.shape)} and dtype {result.dtype}; allowed: "
        f"{list(inputs.shape)}, {kind}.",
    )
    scale, zero = (_along(x, inputs, axis or 0) for x in (scales, zero_points))
    return result.copy_(store_integers(torch.round(wide(inputs) / scale) + zero, kind, name))


@implements("_quantize_per_tensor_impl.out")
def _quantize_per_tensor_impl(inputs, scales, zero_points, dtype, *, result):
    name = "_quantize_per_tensor_impl"
    return _write_quantised(name, inputs, scales, zero_points, None, dtype, result)


@implements("_quantize_per_channel_impl.out")
def _quantize_per_channel_impl(inputs, scales, zero_points, axis, dtype, *, result):
    name = "_quantize_per_channel_impl"
    require(
        -inputs.dim() <= axis < inputs.dim(),
        f"{name}: axis is {axis}; inputs has {inputs.dim()} dimensions.",
        "VALUE",
    )
    return _write_quantised(name, inputs, scales, zero_points, axis, dtype, result)


@implements("npu_ifmr")
def npu_ifmr(
    data, data_min, data_max, cumsum, min_percentile, max_percentile, search_start, search_end,
    search_step, with_offset,
):  # fmt: skip
    """The step between search_start and search_end whose quantisation is closest to the data."""
    name = "npu_ifmr"
    floating(name, data=data, data_min=data_min, data_max=data_max)
    for what, x in (("data_min", data_min), ("data_max", data_max)):
        require(x.numel() == 1, f"{name}: {what} has shape {list(x.shape)}; allowed: [1].")
    require(
        cumsum.dim() == 1 and cumsum.numel() > 0,
        f"{name}: cumsum has shape {list(cumsum.shape)}; allowed: [bins].",
    )
    require(search_step > 0, f"{name}: search_step is {search_step}; it must be positive.", "VALUE")
    require(
        search_start < search_end,
        f"{name}: search_start is {search_start} and search_end {search_end}; the range is empty.",
        "VALUE",
    )
    x = wide(data)
    low, high = (wide(t).reshape(()).to(x.dtype) for t in (data_min, data_max))
    part, bins = cumsum.to(x.dtype) / max(data.numel(), 1), cumsum.numel()
    top = (part < max_percentile).sum() / bins * (high - low) + low
    bottom = (part < 1 - min_percentile).sum() / bins * (high - low) + low
    steps = torch.arange(search_start, search_end, search_step, dtype=x.dtype, device=x.device)
    if with_offset:
        top, bottom = top.clamp(min=0), bottom.clamp(max=0)
        scale = (top * steps - bottom) / 255
    else:
        scale = torch.maximum(top.abs(), bottom.abs()) * steps / 127
    scale = torch.where(scale < 1.19e-7, 1, scale)
    offset = -(torch.round(bottom / scale) + 128) if with_offset else torch.zeros_like(scale)
    # One step at a time: the data may be large.
    losses = []
    for i in range(steps.numel()):
        q = torch.clamp(torch.round(x / scale[i]) + offset[i], -128, 127)
        losses.append((((q - offset[i]) * scale[i] - x) ** 2).sum())
    best = torch.stack(losses).argmin().reshape(1)
    return scale[best].float(), offset[best].float()
