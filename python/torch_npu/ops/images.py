# SPDX-License-Identifier: Apache-2.0
"""Images: crops of boxes, and decoding."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, unsupported, wide

_METHODS = ("bilinear", "nearest", "bilinear_v2")


def _places(first, last, size: int, count: int):
    """Where `count` points from first to last (both 0 to 1) lie on `size` pixels, (boxes, count)."""
    if count == 1:
        return ((first + last) / 2 * (size - 1))[:, None]
    steps = torch.arange(count, device=first.device)
    return (first * (size - 1))[:, None] + steps * ((last - first) * (size - 1) / (count - 1))[
        :, None
    ]


def _line(first, last, size: int, count: int, method: str):
    """(lower pixel, upper pixel, weight of the upper one, outside) along one axis, (boxes, count)."""
    if method == "bilinear_v2":
        start = torch.floor(first * size)
        length = (torch.floor(last * size) - start + 1).clamp(min=1)
        steps = torch.arange(count, device=first.device) + 0.5
        at = steps * (length / count)[:, None] - 0.5
        most = (length - 1)[:, None]
        lower = torch.minimum(at.floor().clamp(min=0), most)
        upper = torch.minimum(at.ceil().clamp(min=0), most)
        pixels = [(p + start[:, None]).clamp(0, size - 1) for p in (lower, upper)]
        return *pixels, at - lower, torch.zeros_like(at, dtype=torch.bool)
    at = _places(first, last, size, count)
    outside = (at < 0) | (at > size - 1)
    at = at.clamp(0, size - 1)
    if method == "nearest":
        at = torch.floor(at + 0.5)
    return at.floor(), at.ceil(), at - at.floor(), outside


@implements("crop_and_resize")
def crop_and_resize(input, boxes, box_index, crop_size, extrapolation_value=0, method="bilinear"):
    """Boxes are y1, x1, y2, x2 of each, as parts of the image."""
    name = "crop_and_resize"
    require(boxes is not None, f"{name}: [boxes] should be mandatory", "VALUE")
    require(input.dim() == 4, f"{name}: input x dim must be 4, but got {input.dim()}.")
    require(
        len(crop_size) == 2 and min(crop_size) > 0,
        f"{name}: crop_size size must be 2, of positive numbers, but got {list(crop_size)}.",
    )
    require(
        method in _METHODS, f"{name}: method is {method}; allowed: {', '.join(_METHODS)}.", "VALUE"
    )
    require(
        len(boxes) == 4 * len(box_index),
        f"{name}: boxes has {len(boxes)} numbers for {len(box_index)} boxes; give four for each.",
    )
    require(
        all(0 <= i < input.size(0) for i in box_index),
        f"{name}: box_index is {list(box_index)}; allowed: 0 to {input.size(0) - 1}.",
        "VALUE",
    )
    floating(name, input=input)
    images = wide(input)
    images = images.index_select(0, torch.tensor(box_index, dtype=torch.int64, device=input.device))
    corners = torch.tensor(boxes, dtype=images.dtype, device=input.device).view(-1, 4)
    y1, x1, y2, x2 = corners.unbind(1)
    rows = _line(y1, y2, input.size(2), crop_size[0], method)
    columns = _line(x1, x2, input.size(3), crop_size[1], method)
    values = _lerp(_lerp(images, rows, 2), columns, 3)
    outside = rows[3][:, None, :, None] | columns[3][:, None, None, :]
    return values.masked_fill(outside, extrapolation_value).to(input.dtype)


def _lerp(x, line, dim: int):
    """x (boxes, C, H, W) between two pixels of an axis."""
    lower, upper, weight, _ = line
    shape = [-1, 1, 1, 1]
    shape[dim] = lower.size(1)
    size = list(x.shape)
    size[dim] = lower.size(1)
    low, high = (x.gather(dim, p.to(torch.int64).view(shape).expand(size)) for p in (lower, upper))
    return low + (high - low) * weight.view(shape)


def _jpeg_shape(input, image_shape, channels, try_recover_truncated):
    name = "decode_jpeg"
    require(
        len(image_shape) == 3,
        f"{name}: image_shape size must be 3, but got {list(image_shape)}; give [height, width, channels].",
    )
    require(
        input.dtype == torch.uint8 and input.dim() == 1,
        f"{name}: the input is {input.dtype} {list(input.shape)}; allowed: torch.uint8 of one dimension.",
        "TYPE",
    )
    count = channels or image_shape[2]
    require(count in (1, 3), f"{name}: channels is {count}; allowed: 0, 1, 3.", "VALUE")
    return count, image_shape[0], image_shape[1]


def _decode_jpeg_meta(input, image_shape, channels=3, try_recover_truncated=False):
    return input.new_empty(_jpeg_shape(input, image_shape, channels, try_recover_truncated))


@implements("decode_jpeg", meta=_decode_jpeg_meta)
def decode_jpeg(input, image_shape, channels=3, try_recover_truncated=False):
    """(C, H, W), by torchvision's decoder on the CPU; not bit for bit what Ascend's decoder gives."""
    shape = _jpeg_shape(input, image_shape, channels, try_recover_truncated)
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except ImportError:
        unsupported(
            "decode_jpeg: the package torchvision, whose decoder it uses, is not installed here: "
            "install torchvision, or decode with another library."
        )
    mode = ImageReadMode.GRAY if shape[0] == 1 else ImageReadMode.RGB
    image = decode_jpeg(input.cpu(), mode)
    require(
        tuple(image.shape) == shape,
        f"decode_jpeg: image_shape is {list(image_shape)}, but the image has the size "
        f"{list(image.shape[1:])}.",
    )
    return image.to(input.device)
