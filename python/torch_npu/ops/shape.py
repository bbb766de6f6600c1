# SPDX-License-Identifier: Apache-2.0
"""Shapes, casts, order and choice."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import INT4, dtype_of, require, unsupported, wide


def _into(out, result):
    """Writes to out=, which takes the result's size."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _check_perm(name, x, perm) -> None:
    require(
        sorted(d % x.dim() if x.dim() else d for d in perm) == list(range(x.dim())),
        f"{name}: perm is {list(perm)}; it must name each of the {x.dim()} dimensions once.",
    )


@implements("npu_transpose")
def npu_transpose(input, perm, require_contiguous=True):
    _check_perm("npu_transpose", input, perm)
    return input.permute(perm).clone(memory_format=torch.contiguous_format)


@implements("npu_transpose.out", "npu_transpose_trans_contiguous.out")
def npu_transpose_out(input, perm, require_contiguous=True, *, out):
    _check_perm("npu_transpose", input, perm)
    return _into(out, input.permute(perm))


@implements("npu_confusion_transpose")
def npu_confusion_transpose(input, perm, shape, transpose_first):
    name = "npu_confusion_transpose"
    if transpose_first:
        _check_perm(name, input, perm)
        return input.permute(perm).contiguous().view(shape)
    viewed = input.reshape(shape)
    _check_perm(name, viewed, perm)
    return viewed.permute(perm).clone(memory_format=torch.contiguous_format)


@implements("npu_reshape")
def npu_reshape(input, shape, can_refresh=False):
    return input.reshape(shape).clone()


@implements("npu_reshape.out")
def npu_reshape_out(input, shape, can_refresh=False, *, out):
    return _into(out, input.reshape(shape))


@implements("npu_broadcast")
def npu_broadcast(input, size):
    return input.expand(size).clone(memory_format=torch.contiguous_format)


@implements("npu_broadcast.out")
def npu_broadcast_out(input, size, *, out):
    return _into(out, input.expand(size))


def _slice(x, offsets, size):
    name = "npu_slice"
    require(
        len(offsets) == len(size) == x.dim(),
        f"{name}: offsets {list(offsets)} and size {list(size)} must have {x.dim()} numbers each.",
    )
    for dim, (start, count) in enumerate(zip(offsets, size)):
        count = x.size(dim) - start if count == -1 else count
        require(
            0 <= start <= x.size(dim) and 0 <= count <= x.size(dim) - start,
            f"{name}: offset {start} and size {count} of dimension {dim} leave the input's size {x.size(dim)}.",
            "VALUE",
        )
        x = x.narrow(dim, start, count)
    return x


@implements("npu_slice")
def npu_slice(input, offsets, size):
    return _slice(input, offsets, size).clone(memory_format=torch.contiguous_format)


@implements("npu_slice.out")
def npu_slice_out(input, offsets, size, *, out):
    return _into(out, _slice(input, offsets, size))


@implements("npu_pad")
def npu_pad(input, paddings):
    require(
        len(paddings) == 2 * input.dim(),
        f"npu_pad: paddings has {len(paddings)} numbers; {input.dim()} dimensions need {2 * input.dim()}.",
    )
    pairs = list(zip(paddings[::2], paddings[1::2]))[::-1]
    return F.pad(input, [n for pair in pairs for n in pair])


@implements("npu_stride_copy")
def npu_stride_copy(input, shape, stride, storage_offset):
    return torch.as_strided(input, shape, stride, int(storage_offset)).clone(
        memory_format=torch.contiguous_format
    )


@implements("npu_stride_copy.out")
def npu_stride_copy_out(input, shape, stride, storage_offset, *, out):
    return _into(out, torch.as_strided(input, shape, stride, int(storage_offset)))


@implements("npu_view_copy")
def npu_view_copy(input, other, non_blocking):
    return input.copy_(other, non_blocking)


@implements("npu_one_hot")
def npu_one_hot(input, num_classes=-1, depth=1, on_value=1, off_value=0):
    require(depth > 0, f"npu_one_hot: depth is {depth}; it must be positive.", "VALUE")
    hit = input.unsqueeze(-1) == torch.arange(depth, device=input.device)
    on = torch.full((), float(on_value), dtype=torch.float32, device=input.device)
    return torch.where(hit, on, torch.full_like(on, float(off_value)))


@implements("npu_sort_v2")
def npu_sort_v2(input, dim=-1, descending=False):
    return torch.sort(input, dim=dim, descending=descending)[0]


@implements("npu_sort_v2.out")
def npu_sort_v2_out(input, dim=-1, descending=False, *, out):
    return _into(out, torch.sort(input, dim=dim, descending=descending)[0])


@implements("npu_max.dim")
def npu_max(input, dim, keepdim=False):
    values, indices = torch.max(input, dim, keepdim)
    return values, indices.to(torch.int32)


@implements("npu_min.dim")
def npu_min(input, dim, keepdim=False):
    values, indices = torch.min(input, dim, keepdim)
    return values, indices.to(torch.int32)


def _back_to_places(grad, dim, indices, sizes, keepdim):
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(sizes).scatter(dim, indices.to(torch.int64), grad)


@implements("npu_max_backward", "npu_min_backward")
def npu_max_backward(grad, dim, indices, sizes, keepdim):
    return _back_to_places(grad, dim, indices, sizes, keepdim)


@implements("npu_dtype_cast")
def npu_dtype_cast(input, dtype, input_dtype=None):
    name = "npu_dtype_cast"
    target = dtype_of(dtype, None, name, "dtype")
    if target == INT4 or dtype_of(input_dtype, None, name, "input_dtype") == INT4:
        unsupported(f"{name}: int4 is not supported here; use npu_quantize or npu_anti_quant.")
    return input.to(target)


@implements("_npu_dtype_cast", "_npu_dtype_cast_backward")
def _npu_dtype_cast(input, dtype):
    return input.to(dtype)


@implements("npu_dtype_cast_")
def npu_dtype_cast_(input, src):
    return input.copy_(src)


@implements("npu_dtype_cast_backward")
def npu_dtype_cast_backward(grad, dtype, grad_dtype=None, input_dtype=None):
    return grad.to(dtype)


@implements("reverse")
def reverse(input, axis):
    return input.flip(axis)


@implements("one_")
def one_(input):
    return input.fill_(1)


@implements("npu_sign_bits_pack")
def npu_sign_bits_pack(input, size):
    name = "npu_sign_bits_pack"
    require(input.dim() == 1, f"{name}: the input has {input.dim()} dimensions; allowed: 1.")
    bytes_ = -(-input.numel() // 8)
    require(
        size > 0 and bytes_ % size == 0,
        f"{name}: size is {size}, which must divide the {bytes_} bytes.",
        "VALUE",
    )
    bits = F.pad((input >= 0).to(torch.uint8), (0, bytes_ * 8 - input.numel())).view(-1, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], device=input.device)
    return (bits * weights).sum(-1).to(torch.uint8).view(size, -1)


@implements("npu_sign_bits_unpack")
def npu_sign_bits_unpack(input, size, dtype):
    name = "npu_sign_bits_unpack"
    require(
        input.dtype == torch.uint8,
        f"{name}: the input is {input.dtype}; allowed: torch.uint8.",
        "TYPE",
    )
    count = input.numel() * 8
    require(
        size > 0 and count % size == 0,
        f"{name}: size is {size}, which must divide the {count} bits.",
        "VALUE",
    )
    places = torch.arange(8, device=input.device, dtype=torch.uint8)
    bits = ((input.flatten()[:, None] >> places) & 1).to(dtype)
    return (bits * 2 - 1).view(size, -1)


@implements("npu_top_k_top_p")
def npu_top_k_top_p(logits, p=None, k=None):
    ordered, places = torch.sort(logits, dim=-1, stable=True)
    never = float("-inf")
    if k is not None:
        at = (ordered.size(-1) - k.to(torch.int64)).clamp(0, ordered.size(-1) - 1)
        ordered = ordered.masked_fill(ordered < ordered.gather(-1, at.unsqueeze(-1)), never)
    if p is not None:
        mass = torch.softmax(wide(ordered), -1).cumsum(-1)
        drop = mass <= 1 - wide(p).unsqueeze(-1)
        last = torch.arange(drop.size(-1), device=drop.device) == drop.size(-1) - 1
        ordered = ordered.masked_fill(drop & ~last, never)
    return torch.empty_like(ordered).scatter(-1, places, ordered)


def _channels(x, start: int, count: int):
    """`count` channels of x (N, C, ...) from one on; those that x lacks are 0."""
    part = x.narrow(1, min(start, x.size(1)), max(0, min(count, x.size(1) - start)))
    missing = part.new_zeros(x.size(0), count - part.size(1), *x.shape[2:])
    return torch.cat((part, missing), 1)


@implements("npu_stride_add")
def npu_stride_add(input, other, offset1, offset2, c1_len):
    """Offsets and the length count blocks of 16 channels."""
    name = "npu_stride_add"
    require(
        input.dim() >= 2 and input.dim() == other.dim() and input.size(0) == other.size(0)
        and input.shape[2:] == other.shape[2:],
        f"{name}: the inputs have shapes {list(input.shape)} and {list(other.shape)}; they may differ in "
        "their channels (dimension 1) only.",
    )  # fmt: skip
    require(
        min(offset1, offset2, c1_len) >= 0,
        f"{name}: offset1 is {offset1}, offset2 {offset2} and c1_len {c1_len}; none may be negative.",
        "VALUE",
    )
    count = 16 * int(c1_len)
    first = _channels(wide(input), 16 * int(offset1), count)
    return (first + _channels(wide(other), 16 * int(offset2), count)).to(input.dtype)


@implements("empty_with_swapped_memory")
def empty_with_swapped_memory(size, *, dtype=None, device=None):
    """A plain tensor of the device: its memory may be anywhere."""
    return torch.empty(size, dtype=dtype, device="npu" if device is None else device)
