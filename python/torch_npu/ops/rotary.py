# SPDX-License-Identifier: Apache-2.0
"""Rotary position embeddings."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, wide

_MODES = ("half", "interleave", "quarter", "interleave-half")


def _turned(x, mode: str):
    """(x as it is multiplied by cos, its rotation that is multiplied by sin)."""
    if mode == "interleave":
        return x, torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    if mode == "quarter":
        a, b, c, d = x.chunk(4, -1)
        return x, torch.cat((-b, a, -d, c), -1)
    if mode == "interleave-half":
        x = torch.cat((x[..., ::2], x[..., 1::2]), -1)
    a, b = x.chunk(2, -1)
    return x, torch.cat((-b, a), -1)


def _rotate(x, cos, sin, mode: str):
    """Halves are rounded once, at the end."""
    plain, turned = _turned(wide(x), mode)
    return (plain * wide(cos) + turned * wide(sin)).to(x.dtype)


def _check(name, x, cos, sin, mode) -> None:
    require(
        mode in _MODES,
        f"{name}: The rotary_mode of {name} should be half or interleave, but got {mode}",
    )
    parts = 4 if mode == "quarter" else 2
    require(
        x.size(-1) % parts == 0,
        f"{name}: the last size of the input is {x.size(-1)}; rotary_mode {mode} needs a multiple of {parts}.",
    )
    require(
        cos.shape == sin.shape and cos.size(-1) == x.size(-1),
        f"{name}: cos has shape {list(cos.shape)} and sin {list(sin.shape)}; both must be the same, with "
        f"last size {x.size(-1)}.",
    )
    floating(name, input=x, r1=cos, r2=sin)
    require(
        cos.dim() <= x.dim()
        and all(c in (1, n) for c, n in zip(reversed(cos.shape), reversed(x.shape))),
        f"{name}: r1 and r2 have shape {list(cos.shape)}, which must broadcast to the input's "
        f"{list(x.shape)}.",
    )


@implements("npu_rotary_mul")
def npu_rotary_mul(input, r1, r2, rotary_mode="half", rotate=None):
    _check("npu_rotary_mul", input, r1, r2, rotary_mode)
    if rotate is None:
        return _rotate(input, r1, r2, rotary_mode)
    turned = input @ rotate.to(input.dtype)
    return (input * r1.to(input.dtype) + turned * r2.to(input.dtype)).detach()


@implements("npu_rotary_mul_backward")
def npu_rotary_mul_backward(grad, input, r1, r2, rotary_mode="half"):
    _check("npu_rotary_mul_backward", input, r1, r2, rotary_mode)
    plain, turned = _turned(input, rotary_mode)
    cos, sin = r1.to(input.dtype), r2.to(input.dtype)
    back = _turned_back(grad * cos, grad * sin, rotary_mode)
    return (
        back,
        (grad * plain).sum_to_size(r1.shape).to(r1.dtype),
        (grad * turned).sum_to_size(r2.shape).to(r2.dtype),
    )


def _turned_back(plain, turned, mode: str):
    """The transpose of _turned."""
    if mode == "interleave":
        return plain + torch.stack((turned[..., 1::2], -turned[..., ::2]), -1).flatten(-2)
    if mode == "quarter":
        a, b, c, d = turned.chunk(4, -1)
        return plain + torch.cat((b, -a, d, -c), -1)
    a, b = turned.chunk(2, -1)
    whole = plain + torch.cat((b, -a), -1)
    if mode == "half":
        return whole
    return torch.stack(whole.chunk(2, -1), -1).flatten(-2)


@implements("npu_apply_rotary_pos_emb")
def npu_apply_rotary_pos_emb(query, key, cos, sin, layout="BSND", rotary_mode="half"):
    name = "npu_apply_rotary_pos_emb"
    allowed = ("BSND", "SBND", "BNSD", "TND", "BSH")
    require(layout in allowed, f"{name}: layout is {layout}; allowed: {', '.join(allowed)}.")
    for x in (query, key):
        _check(name, x, cos, sin, rotary_mode)
    query.copy_(_rotate(query, cos, sin, rotary_mode))
    key.copy_(_rotate(key, cos, sin, rotary_mode))
    return query.view_as(query), key.view_as(key)


@implements("npu_interleave_rope")
def npu_interleave_rope(x, cos, sin):
    _check("npu_interleave_rope", x, cos, sin, "interleave-half")
    return _rotate(x, cos, sin, "interleave-half")


@implements("npu_mrope")
def npu_mrope(
    positions, query, key, cos_sin_cache, head_size, *, mrope_section=None, rotary_mode="half",
    cache_mode="default",
):  # fmt: skip
    name = "npu_mrope"
    # The documents say interleaved, where other operators say interleave.
    mode = "interleave" if rotary_mode == "interleaved" else rotary_mode
    require(
        mode in ("half", "interleave"),
        f"{name}: rotary_mode is {rotary_mode}; allowed: half, interleaved.",
    )
    require(
        cache_mode in ("default", "interleave"),
        f"{name}: cache_mode is {cache_mode}; allowed: default, interleave.",
    )
    cos, sin = cos_sin_cache[positions.to(torch.int64)].chunk(2, -1)  # (…, tokens, rotary_dim / 2)
    if positions.dim() == 2:
        require(
            mrope_section and sum(mrope_section) == cos.size(-1),
            f"{name}: mrope_section is {mrope_section}; with positions of {positions.size(0)} rows its "
            f"sum must be {cos.size(-1)}, half of rotary_dim.",
        )
        require(
            len(mrope_section) == positions.size(0)
            and (cache_mode == "default" or len(mrope_section) == 3),
            f"{name}: mrope_section is {mrope_section}, positions has {positions.size(0)} rows and "
            f"cache_mode is {cache_mode}; a section for each row is needed, with cache_mode interleave 3.",
        )
        cos, sin = (_sections(x, mrope_section, cache_mode) for x in (cos, sin))
    return tuple(_turn_heads(x, cos, sin, head_size, mode, name) for x in (query, key))


def _sections(x, sections, cache_mode):
    """Columns of row 0, 1 and 2 (time, height, width): in blocks, or every third one."""
    if cache_mode == "default":
        return torch.cat([part[i] for i, part in enumerate(x.split(list(sections), -1))], -1)
    result = x[0].clone()
    for row in (1, 2):
        stop = sections[row] * 3
        result[..., row:stop:3] = x[row][..., row:stop:3]
    return result


def _turn_heads(x, cos, sin, head_size, mode, name):
    require(
        x.size(-1) % head_size == 0,
        f"{name}: head_size is {head_size}, which must divide the last size {x.size(-1)}.",
    )
    heads = x.unflatten(-1, (-1, head_size))
    size = cos.size(-1) * 2
    if mode == "half":
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    else:
        cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    turned = _rotate(heads[..., :size], cos[:, None], sin[:, None], mode)
    return torch.cat((turned, heads[..., size:]), -1).flatten(-2)
