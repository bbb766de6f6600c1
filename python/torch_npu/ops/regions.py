# SPDX-License-Identifier: Apache-2.0
"""Regions of images: suppression by class, pooling by position, deformable and int8 convolution."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import dtype_of, refuse_given, require, unsupported, wide
from torch_npu.ops.detection import _suppress
from torch_npu.ops.gradients import _through
from torch_npu.ops.matmul import scale_of


def _batch_nms_meta(
    input, scores, score_threshold, iou_threshold, per_class, total, *args, **kwargs
):
    batch = input.size(0)
    return (
        input.new_empty(batch, total, 4),
        input.new_empty(batch, total),
        input.new_empty(batch, total),
        input.new_empty(batch, dtype=torch.int32),
    )


def _best_of_image(boxes, scores, score_threshold, iou_threshold, per_class: int):
    """(class, box number, score) of all boxes kept, best first."""
    found = []
    for c in range(scores.size(1)):
        numbers = torch.nonzero(scores[:, c] > score_threshold).flatten()
        here = boxes[numbers, c if boxes.size(1) > 1 else 0]
        kept = _suppress(here, scores[numbers, c], iou_threshold)[:per_class]
        found += [(c, int(numbers[i]), float(scores[numbers[i], c])) for i in kept]
    return sorted(found, key=lambda row: -row[2])


@implements("npu_batch_nms", meta=_batch_nms_meta)
def npu_batch_nms(
    input, scores, score_threshold, iou_threshold, max_size_per_class, max_total_size,
    change_coordinate_frame=False, transpose_box=False,
):  # fmt: skip
    name = "npu_batch_nms"
    refuse_given(
        name, change_coordinate_frame=change_coordinate_frame or None,
        transpose_box=transpose_box or None,
    )  # fmt: skip
    require(
        input.dim() == 4 and input.size(3) == 4 and scores.dim() == 3
        and input.shape[:2] == scores.shape[:2] and input.size(2) in (1, scores.size(2)),
        f"{name}: boxes have shape {list(input.shape)} and scores {list(scores.shape)}; "
        "allowed: (batch, n, 1 or classes, 4) and (batch, n, classes).",
    )  # fmt: skip
    require(
        max_size_per_class >= 0 and max_total_size >= 0,
        f"{name}: max_size_per_class is {max_size_per_class}, max_total_size {max_total_size}; "
        "they must not be negative.",
        "VALUE",
    )
    results = _batch_nms_meta(input, scores, 0, 0, 0, max_total_size)
    for result in results:
        result.zero_()
    for b in range(input.size(0)):
        rows = _best_of_image(
            input[b], wide(scores[b]), score_threshold, iou_threshold, max_size_per_class
        )[:max_total_size]
        for i, (c, number, score) in enumerate(rows):
            results[0][b, i] = input[b, number, c if input.size(2) > 1 else 0]
            results[1][b, i], results[2][b, i] = score, c
        results[3][b] = len(rows)
    return results


def _bins(start, size, count: int, length: int):
    """1 where a pixel of `length` is in a bin: (R, count, length)."""
    steps = torch.arange(count, device=start.device)
    low = torch.floor(start[:, None] + steps * (size / count)[:, None])
    high = torch.ceil(start[:, None] + (steps + 1) * (size / count)[:, None])
    pixels = torch.arange(length, device=start.device)
    inside = (pixels >= low.clamp(0, length)[..., None]) & (
        pixels < high.clamp(0, length)[..., None]
    )
    return inside.to(start.dtype)


@implements("npu_ps_roi_pooling")
def npu_ps_roi_pooling(input, rois, spatial_scale, group_size, output_dim):
    """rois (B, 5, R): image, x1, y1, x2, y2. Bin (i, j) of channel c reads channel (c G + i) G + j."""
    name = "npu_ps_roi_pooling"
    g = group_size
    require(
        rois.dim() == 3 and rois.size(1) == 5,
        f"{name}: rois has shape {list(rois.shape)}; allowed: (batch, 5, rois).",
    )
    require(
        input.dim() == 4 and input.size(1) == g * g * output_dim,
        f"{name}: the input has shape {list(input.shape)}; allowed: (batch, {g} * {g} * {output_dim}, height, width).",
    )
    boxes = wide(rois).transpose(1, 2).flatten(0, 1)
    x1, y1 = (torch.round(boxes[:, i]) * spatial_scale for i in (1, 2))
    x2, y2 = ((torch.round(boxes[:, i]) + 1) * spatial_scale for i in (3, 4))
    down = _bins(y1, (y2 - y1).clamp(min=0.1), g, input.size(2))
    across = _bins(x1, (x2 - x1).clamp(min=0.1), g, input.size(3))
    maps = wide(input).index_select(0, boxes[:, 0].to(torch.int64)).unflatten(1, (output_dim, g, g))
    total = torch.einsum("rcijhw,rih,rjw->rcij", maps, down.to(maps.dtype), across.to(maps.dtype))
    area = (down.sum(-1)[:, None, :, None] * across.sum(-1)[:, None, None, :]).to(maps.dtype)
    return (total / area.clamp(min=1)).to(input.dtype)


@implements("npu_ps_roi_pooling_backward")
def npu_ps_roi_pooling_backward(
    output_grad, rois, spatial_scale, group_size, output_dim, input_size
):
    """`input_size`: height and width."""
    sizes = (rois.size(0), group_size * group_size * output_dim, *input_size[-2:])

    def pooled(maps):
        return npu_ps_roi_pooling(maps, rois, spatial_scale, group_size, output_dim)

    grad = wide(output_grad)
    return _through(pooled, [grad.new_zeros(sizes)], grad)[0].to(output_grad.dtype)


def _at(x, ys, xs):
    """Bilinear values (N, C, P) of x (N, C, H, W) at places (N, P); pixels outside are zero."""
    high, across = x.size(2), x.size(3)
    flat = x.flatten(2)
    value = 0
    for y0, wy in ((ys.floor(), 1 - (ys - ys.floor())), (ys.floor() + 1, ys - ys.floor())):
        for x0, wx in ((xs.floor(), 1 - (xs - xs.floor())), (xs.floor() + 1, xs - xs.floor())):
            inside = (y0 >= 0) & (y0 < high) & (x0 >= 0) & (x0 < across)
            index = y0.clamp(0, high - 1) * across + x0.clamp(0, across - 1)
            index = index.detach().to(torch.int64)[:, None].expand(-1, x.size(1), -1)
            value = value + flat.gather(2, index) * (wy * wx * inside)[:, None]
    return value


def _deformed(x, offset, kernel, stride, padding, dilation, groups: int, modulated: bool):
    """Columns (N, C, Ho·kh, Wo·kw) that a plain convolution with stride (kh, kw) reads."""
    (kh, kw), (ho, wo) = kernel, offset.shape[2:]
    batch, points = x.size(0), kh * kw
    dx, dy, *mask = offset.unflatten(1, (-1, groups, points)).unbind(1)

    def places(count, size, step, pad, spread):
        """(size, count): where each point of the kernel lies without an offset."""
        start = torch.arange(size, device=x.device) * step - pad
        return start[None, :] + torch.arange(count, device=x.device)[:, None] * spread

    ys = places(kh, ho, stride[0], padding[0], dilation[0])[:, None, :, None]
    xs = places(kw, wo, stride[1], padding[1], dilation[1])[None, :, None, :]
    ys, xs = (
        (dy.unflatten(2, (kh, kw)) + ys).flatten(3).flatten(2),
        (dx.unflatten(2, (kh, kw)) + xs).flatten(3).flatten(2),
    )
    parts = x.unflatten(1, (groups, -1)).flatten(0, 1)
    found = _at(parts, ys.flatten(0, 1), xs.flatten(0, 1)).unflatten(0, (batch, groups))
    found = found.unflatten(3, (kh, kw, ho, wo))
    if modulated:
        found = found * mask[0].unflatten(2, (kh, kw))[:, :, None]
    return found.flatten(1, 2).permute(0, 1, 4, 2, 5, 3).flatten(4).flatten(2, 3)


def _check_deformable(name, input, weight, offset, kernel_size, groups: int, modulated: bool):
    kw, kh = kernel_size
    channels = groups * kh * kw * (3 if modulated else 2)
    require(
        weight.dim() == 4 and tuple(weight.shape[2:]) == (kh, kw),
        f"{name}: weight has shape {list(weight.shape)}; kernel_size, width first, says ({kh}, {kw}).",
    )
    require(
        input.dim() == 4 and input.size(1) % groups == 0,
        f"{name}: the input has shape {list(input.shape)}; allowed: (n, a multiple of {groups}, height, width).",
    )
    require(
        offset.dim() == 4 and offset.size(1) == channels,
        f"{name}: offset has shape {list(offset.shape)}; allowed: (n, {channels}, height, width).",
    )
    return kh, kw


@implements("npu_deformable_conv2d")
def npu_deformable_conv2d(
    input, weight, offset, bias, kernel_size, stride, padding, dilation=(1, 1, 1, 1), groups=1,
    deformable_groups=1, modulated=True,
):  # fmt: skip
    """Offsets: along x for all groups and points, then along y, then the mask; padding top, bottom, left, right."""
    name = "npu_deformable_conv2d"
    kernel = _check_deformable(
        name, input, weight, offset, kernel_size, deformable_groups, modulated
    )
    for what, value in (("stride", stride), ("padding", padding), ("dilation", dilation)):
        require(len(value) == 4, f"{name}: {what} has {len(value)} numbers; allowed: 4.")
    columns = _deformed(
        wide(input), wide(offset), kernel, stride[2:], padding[::2], dilation[2:],
        deformable_groups, modulated,
    )  # fmt: skip
    out = F.conv2d(
        columns, wide(weight), None if bias is None else wide(bias), kernel, groups=groups
    )
    return out.to(input.dtype), columns.to(input.dtype)


@implements("npu_deformable_conv2dbk")
def npu_deformable_conv2dbk(
    input, grad_output, offset_out, weight, offset, kernel_size, stride, padding,
    dilation=(1, 1, 1, 1), groups=1, deformable_groups=1, modulated=True,
):  # fmt: skip
    """(of the input, of the weight, of the offset, of the bias)"""

    def forward(x, w, o):
        return npu_deformable_conv2d(
            x, w, o, None, kernel_size, stride, padding, dilation, groups, deformable_groups,
            modulated,
        )[0]  # fmt: skip

    grad = wide(grad_output)
    grads = _through(forward, [wide(input), wide(weight), wide(offset)], grad)
    whole = [*grads, grad.sum((0, 2, 3))]
    return tuple(g.to(x.dtype) for g, x in zip(whole, (input, weight, offset, input)))


@implements("npu_quant_conv2d")
def npu_quant_conv2d(
    input, weight, scale, strides=(1, 1), pads=(0, 0), dilations=(1, 1), groups=1, offset_x=0,
    round_mode="rint", output_dtype=None, bias=None, offset=None, input_dtype=None,
    weight_dtype=None,
):  # fmt: skip
    name = "npu_quant_conv2d"
    refuse_given(name, input_dtype=input_dtype, weight_dtype=weight_dtype)
    for what, x in (("input", input), ("weight", weight)):
        require(x.dtype == torch.int8, f"{name}: {what} is {x.dtype}; allowed: torch.int8.", "TYPE")
    if round_mode != "rint":
        unsupported(f"{name}: round_mode {round_mode} is not supported; allowed: rint.")
    target = dtype_of(output_dtype, torch.float16, name, "output_dtype")
    # Sums of products of int8 are exact in float64.
    x = F.pad(input.double(), (pads[1], pads[1], pads[0], pads[0]), value=float(offset_x))
    y = F.conv2d(x, weight.double(), None, strides, 0, dilations, groups)
    y = y if bias is None else y + bias.double().view(-1, 1, 1)
    y = y * scale_of(scale).double().view(-1, 1, 1)
    y = y if offset is None else y + offset.double().view(-1, 1, 1)
    return torch.round(y).clamp(-128, 127).to(target) if target == torch.int8 else y.to(target)
