# SPDX-License-Identifier: Apache-2.0
"""The MLA prologue: projections, norms and rotation before latent attention, written into caches."""

import inspect

import torch
from torch.autograd import forward_ad

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import _tokens as tokens
from torch_npu.ops import implements
from torch_npu.ops._check import floating, known, require, shapes, wide
from torch_npu.ops.norm import _check_epsilon

_MODES = ("PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "BSND", "TND")
# weight_quant_mode: what the inputs of the quantised products are.
_INT8, _FP8, _HIF8, _MX = "int8", lowp.E4M3, lowp.HIF8, "mx"
_WEIGHTS = {0: None, 1: _INT8, 2: _INT8, 3: _MX, 4: _FP8, 5: _HIF8}


def _kind_of_cache(cache, number, name: str, argument: str):
    """The kind of a quantised cache; None if it is not quantised."""
    if cache.dtype == torch.int8:
        return _INT8
    if cache.is_floating_point() and cache.element_size() > 1:
        return None
    return lowp.kind_of_tensor(cache, number, name, argument, (_FP8, _HIF8))


def _largest(kind) -> float:
    return 127.0 if kind == _INT8 else lowp.LARGEST[kind]


def _encode(x, kind):
    if kind == _INT8:
        return torch.clamp(torch.round(x), -128, 127).to(torch.int8)
    return lowp.encode(x, kind)


def _by_row(x, kind):
    """(quantised rows, their scales (…, 1)); a row of zeros has scale 0."""
    scale = x.abs().amax(-1, keepdim=True) / _largest(kind)
    return _encode(x / torch.where(scale == 0, 1, scale), kind), scale.float()


def _numbers(x, kind, name: str, argument: str):
    """Quantised numbers as float64, in which sums of products of integers are exact."""
    if kind == _INT8:
        require(x.dtype == torch.int8, f"{name}: {argument} is {x.dtype}; allowed: int8.", "TYPE")
        return x.double()
    if kind == _FP8 or x.dtype != torch.uint8:
        require(
            x.dtype == torch.float8_e4m3fn,
            f"{name}: {argument} is {x.dtype}; allowed: float8_e4m3fn.",
            "TYPE",
        )
        return x.double()
    return lowp.decode(x, kind, torch.float64)


def _row_scale(name, argument: str, scale, count: int):
    """A scale per row or column, given as (count), (count, 1) or (1, count)."""
    require(
        scale is not None and scale.numel() == count,
        f"{name}: {argument} is {'None' if scale is None else list(scale.shape)}; give {count} numbers.",
    )
    return scale.reshape(-1).double()


class _Products:
    """Products of the inputs with the weights, dequantised."""

    def __init__(self, name, kind, *, everywhere: bool):
        self.name, self.kind, self.everywhere = name, kind, everywhere

    def _mx(self, x, scale, what, weight, weight_scale, weight_what):
        columns, rows = weight.size(1), weight.size(0)
        numbers = []
        for argument, matrix, factor in (
            (what, x, scale), (weight_what, weight.transpose(0, 1), weight_scale)
        ):  # fmt: skip
            shape = [matrix.size(0), -(-rows // 32)]
            require(
                factor is not None and factor.numel() == shape[0] * shape[1],
                f"{self.name}: the scale of {argument} is "
                f"{'None' if factor is None else list(factor.shape)}; allowed: {shape}.",
            )
            lowp.check_scale(factor, self.name, f"the scale of {argument}")
            factor = lowp.powers(factor.reshape(shape))
            kind = lowp.kind_of_tensor(matrix, None, self.name, argument, (_FP8,))
            numbers.append(lowp.decode(matrix, kind) * lowp.spread(factor, 1, 32, rows))
        return (numbers[0] @ numbers[1].transpose(0, 1)).view(-1, columns)

    def _scaled(self, x, scale, what, weight, weight_scale, weight_what):
        y = _numbers(x, self.kind, self.name, what) @ _numbers(
            weight, self.kind, self.name, weight_what
        )
        rows = _row_scale(self.name, f"the scale of {what}", scale, x.size(0))
        columns = _row_scale(self.name, f"the scale of {weight_what}", weight_scale, weight.size(1))
        return (y * rows[:, None] * columns).float()

    def of_input(self, x, scale, weight, weight_scale, what: str):
        if not self.everywhere:
            floating(self.name, token_x=x, **{what: weight})
            return wide(x) @ wide(weight)
        call = self._mx if self.kind == _MX else self._scaled
        return call(x, scale, "token_x", weight, weight_scale, what)

    def of_query(self, cq, dtype, smooth, weight, weight_scale):
        """(z, the normalised query that was multiplied, its scales or None)."""
        what = "weight_uq_qr"
        if self.kind is None:
            floating(self.name, **{what: weight})
            cq = cq.to(dtype)
            return wide(cq) @ wide(weight), cq, None
        if self.kind == _MX:
            y, scale = lowp.mx_quantise(cq, -1, _FP8)
            flat = lowp.unpair_scale(scale, -1)[:, : -(-cq.size(1) // 32)]
            return self._mx(y, flat, "the query", weight, weight_scale, what), y, flat
        if smooth is not None:
            cq = cq * _row_scale(self.name, "smooth_scales_cq", smooth, cq.size(1)).float()
        y, scale = _by_row(cq, self.kind)
        return self._scaled(y, scale, "the query", weight, weight_scale, what), y, scale


def _check_dims(name, token_x, weight_uk, rope_sin) -> None:
    for what, x, allowed in (("token_x", token_x, (2, 3)), ("weight_uk", weight_uk, (3,)),
                             ("rope_sin", rope_sin, (2, 3))):  # fmt: skip
        text = " or ".join(str(n) for n in allowed)
        require(
            x.dim() in allowed,
            f"{name}: {what} dim num should be {text}, but the actual value is {x.dim()}.",
            "VALUE",
        )


def _check_weights(name, x, dq, uq_qr, uk, dkv_kr, gammas, sin, cos) -> None:
    heads, size, latent = uk.shape
    inner, rope = dq.size(-1), sin.size(-1)
    shapes(
        name, weight_dq=(dq, [x.size(-1), inner]), weight_uq_qr=(uq_qr, [inner, heads * (size + rope)]),
        weight_dkv_kr=(dkv_kr, [x.size(-1), latent + rope]), rmsnorm_gamma_cq=(gammas[0], [inner]),
        rmsnorm_gamma_ckv=(gammas[1], [latent]), rope_sin=(sin, [*x.shape[:-1], rope]),
        rope_cos=(cos, [*x.shape[:-1], rope]),
    )  # fmt: skip
    require(rope % 2 == 0, f"{name}: rope_sin has last size {rope}; it must be even.")
    floating(
        name, weight_uk=uk, rope_sin=sin, rope_cos=cos, rmsnorm_gamma_cq=gammas[0],
        rmsnorm_gamma_ckv=gammas[1],
    )  # fmt: skip


# ---- caches ---------------------------------------------------------------------------------


_Lines = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class _Slots:
    """Where each token's row goes: the flat slot in a paged cache, or its own position."""

    def __init__(self, name, mode: str, x, index, actual_seq_len, cache):
        require(
            mode in _MODES, f"{name}: cache_mode is {mode}; allowed: {', '.join(_MODES)}.", "VALUE"
        )
        self.name, self.mode, self.count = name, mode, x.shape[:-1].numel()
        self._plain: _Lines | None = None  # _real of the slots
        self._all_real = False  # the host knows that no slot is negative
        self.block = None if mode in ("BSND", "TND") else self._block_size(cache)
        if self.block is None:
            self.slots = torch.arange(self.count, device=x.device)
            return
        require(index is not None, f"{name}: cache_index is None; cache_mode {mode} needs it.")
        self.slots = (
            self._by_block(x, index.long(), actual_seq_len)
            if "BLK" in mode
            else index.long().flatten()
        )
        require(
            self.slots.numel() == self.count,
            f"{name}: cache_index has shape {list(index.shape)}; allowed: one number for each of the "
            f"{self.count} tokens.",
        )

    def _block_size(self, cache) -> int:
        require(
            cache.dim() == 4,
            f"{self.name}: kv_cache has shape {list(cache.shape)}; cache_mode {self.mode} takes (blocks, "
            "block size, 1, size).",
        )
        return cache.size(1)

    def _by_block(self, x, index, lengths):
        """index holds block ids: (B, blocks of the longest), or packed one sequence after another."""
        if x.dim() == 3:
            where = tokens.padded(
                self.name, x.size(0), x.size(1), lengths, "actual_seq_len", x.device
            )
        else:
            where = tokens.packed(self.name, x.size(0), lengths, "actual_seq_len", x.device)
        sequence, place = where.sequence.flatten(), where.place.flatten()
        column = place // self.block
        if index.dim() == 2:
            require(
                index.size(0) == where.lengths.size(0) and index.size(1) > 0,
                f"{self.name}: cache_index has shape {list(index.shape)}; allowed: "
                f"({where.lengths.size(0)} sequences, blocks).",
            )
            there = column < index.size(1)
            block = index[sequence, column.clamp(max=index.size(1) - 1)]
        else:
            counts = (where.lengths + self.block - 1) // self.block
            column = (counts.cumsum(0) - counts)[sequence] + column
            there = column < index.numel()
            block = index.flatten()[column.clamp(max=max(index.numel() - 1, 0))]
        there = there & where.live.flatten() & (block >= 0)
        return torch.where(there, block * self.block + place % self.block, -1)

    def put(self, **written) -> None:
        """Writes rows (T, size) into caches, given by argument; negative slots are skipped."""
        for argument, (cache, rows) in written.items():
            self._check(argument, cache, rows)
        if self.block is not None and self.count and known(self.slots):
            self._check_slots({argument: cache for argument, (cache, _) in written.items()})
        for cache, rows in written.values():
            if rows.size(0) > 0:
                self._put(cache, rows)

    def _check_slots(self, caches) -> None:
        """The host reads the slots once, for all caches."""
        argument, cache = min(caches.items(), key=lambda row: row[1].size(0))
        slots = cache.size(0) * self.block
        least, most = torch.stack(self.slots.aminmax()).tolist()
        self._all_real = least >= 0
        if most >= slots:
            wrong = self.slots[self.slots >= slots].tolist()
            text = f"{self.name}: cache_index names slots {wrong}; {argument} has {slots}."
            require(False, text, "VALUE")

    def _check(self, argument: str, cache, rows) -> None:
        name, width = self.name, rows.size(1)
        require(
            rows.dtype == cache.dtype and cache.is_contiguous(),
            f"{name}: {argument} is {cache.dtype}{'' if cache.is_contiguous() else ', not contiguous'}; "
            f"what is written is {rows.dtype}, into contiguous memory.",
            "TYPE",
        )
        slots = self.count if self.block is None else cache.size(0) * self.block
        require(
            cache.numel() == slots * width,
            f"{name}: {argument} has shape {list(cache.shape)}; {slots} slots of {width} numbers are "
            f"{slots * width} elements.",
        )
        if self.block is None:
            return
        chunk = self._chunk(cache)
        require(
            not self.mode.endswith("NZ") or width % chunk == 0,
            f"{name}: {argument} has rows of {width} numbers; cache_mode {self.mode} needs a multiple of "
            f"{chunk}.",
        )

    def _chunk(self, cache) -> int:
        """How many numbers of a row NZ keeps together: 32 bytes of eight or sixteen bits."""
        return 32 if cache.element_size() == 1 else 16

    def _put(self, cache, rows) -> None:
        if self.block is None:
            cache.copy_(rows.view(cache.shape))
            return
        if not self.mode.endswith("NZ"):
            lines = cache.view(-1, rows.size(1))
            if self._all_real:
                lines.index_put_((self.slots,), rows)
                return
            if self._plain is None:
                self._plain = self._real(self.slots)
            self._write(lines, *self._plain, rows)
            return
        # Within a block, the first chunk of all its rows is followed by the second one of all.
        chunk = self._chunk(cache)
        chunks = rows.size(1) // chunk
        block, place = self.slots // self.block, self.slots % self.block
        at = (block * chunks)[:, None] + torch.arange(chunks, device=rows.device)
        at = torch.where(self.slots[:, None] >= 0, at * self.block + place[:, None], -1)
        self._write(cache.view(-1, chunk), *self._real(at.flatten()), rows.reshape(-1, chunk))

    def _real(self, at) -> _Lines:
        """(line, row of it, whether any row is written): a row to be skipped writes the first real one again."""
        real = at >= 0
        source = torch.where(real, torch.arange(at.size(0), device=at.device), real.byte().argmax())
        return at[source].clamp(min=0), source, real.any()

    def _write(self, lines, at, source, some, rows) -> None:
        # If no row is real, line 0 keeps its content.
        lines.index_put_((at,), torch.where(some, rows[source], lines[at]))


def _tiled(ckv, kr, kind, alpha, tile: int, name: str):
    """Bytes of a row: numbers quantised by tile, the rotary part, and the float32 scales."""
    require(
        tile > 0 and ckv.size(1) % tile == 0,
        f"{name}: tile_size is {tile}, which must divide the {ckv.size(1)} columns of weight_uk.",
        "VALUE",
    )
    parts = ckv.unflatten(1, (-1, tile))
    limit = parts.abs().amax(-1, keepdim=True)
    if alpha is not None:
        require(
            alpha.numel() == 1,
            f"{name}: k_nope_clip_alpha has shape {list(alpha.shape)}; allowed: one number.",
        )
        limit = limit * wide(alpha).reshape(())
    parts = torch.minimum(torch.maximum(parts, -limit), limit)
    scale = limit / _largest(kind)
    y = _encode(parts / torch.where(scale == 0, 1, scale), kind).flatten(1)
    scale = scale.squeeze(-1).float().contiguous()
    return torch.cat([x.view(torch.uint8) for x in (y, kr.contiguous(), scale)], 1)


# ---- the operators --------------------------------------------------------------------------


# The device's own operators, one call each: after a product of matrices every small call is slow.


def _norm(name, x, gamma, epsilon: float):
    _check_epsilon(name, epsilon)
    return torch.ops.npu.npu_rms_norm(x, gamma.to(x.dtype), epsilon)[0]


def _turned(x, cos, sin):
    """Rotated by pairs of neighbours, result regrouped into halves."""
    halves = torch.cat((x[..., ::2], x[..., 1::2]), -1)
    return torch.ops.npu.npu_rotary_mul(halves, cos.to(x.dtype), sin.to(x.dtype))


def _by_head(x, weight):
    """(T, N, D) times (N, D, C) as (T, N, C): written where it belongs, if nothing is to be differentiated."""
    by_head = x.transpose(0, 1)
    wants_grad = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if wants_grad or forward_ad._current_level >= 0 or not known(x):
        return (by_head @ weight).transpose(0, 1)
    made = x.new_empty(*x.shape[:2], weight.size(2))
    torch.bmm(by_head, weight, out=made.transpose(0, 1))
    return made


def _times(x, factor: float):
    return x if factor == 1 else x * factor


def _prolog(
    name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, gamma_cq, gamma_ckv, rope_sin,
    rope_cos, kv_cache, kr_cache, *, cache_index, dequant_scale_x, dequant_scale_w_dq,
    dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, quant_scale_ckv, quant_scale_ckr, smooth_scales_cq,
    rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv, cache_mode, weight_quant_mode, kv_cache_quant_mode,
    query_quant_mode, actual_seq_len=None, k_nope_clip_alpha=None, tile_size=128, qc_qr_scale=1.0,
    kc_scale=1.0, kv_cache_dtype=None,
):  # fmt: skip
    """(q, q_rope, scales of q or None, normalised query, its scales or None); writes the caches."""
    _check_dims(name, token_x, weight_uk, rope_sin)
    _check_weights(
        name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, (gamma_cq, gamma_ckv),
        rope_sin, rope_cos,
    )  # fmt: skip
    lead, dtype = list(token_x.shape[:-1]), weight_uk.dtype
    slots = _Slots(name, cache_mode, token_x, cache_index, actual_seq_len, kv_cache)
    products = _Products(name, _WEIGHTS[weight_quant_mode], everywhere=weight_quant_mode > 1)
    x = token_x.reshape(-1, token_x.size(-1))
    sin, cos = (wide(t).reshape(-1, t.size(-1)) for t in (rope_sin, rope_cos))
    heads, size, latent = weight_uk.shape

    cq = products.of_input(x, dequant_scale_x, weight_dq, dequant_scale_w_dq, "weight_dq")
    cq = _times(_norm(name, cq, gamma_cq, rmsnorm_epsilon_cq), qc_qr_scale)
    z, norm, norm_scale = products.of_query(
        cq, dtype, smooth_scales_cq, weight_uq_qr, dequant_scale_w_uq_qr
    )
    z = z.unflatten(1, (heads, size + sin.size(1)))
    q = _by_head(wide(z[..., :size].to(dtype)), wide(weight_uk))
    q_rope = _turned(z[..., size:], cos[:, None], sin[:, None])

    kv = products.of_input(
        x, dequant_scale_x, weight_dkv_kr, dequant_scale_w_dkv_kr, "weight_dkv_kr"
    )
    ckv = _times(_norm(name, kv[:, :latent], gamma_ckv, rmsnorm_epsilon_ckv), kc_scale)
    kr = _turned(kv[:, latent:], cos, sin).to(dtype)

    q_scale, kind = None, _kind_of_cache(kv_cache, kv_cache_dtype, name, "kv_cache")
    require(
        (kind is None) == (kv_cache_quant_mode == 0),
        f"{name}: kv_cache is {kv_cache.dtype} and the keys are "
        f"{'not quantised' if kv_cache_quant_mode == 0 else 'quantised'}; give a cache of what is "
        "written.",
        "TYPE",
    )
    if query_quant_mode == 1:
        factor = _key_scale(name, quant_scale_ckv, 1)
        q, q_scale = _by_row(wide(q.to(dtype)), kind)
        q_rope = q_rope * factor / torch.where(q_scale == 0, 1, q_scale)
    else:
        q = q.to(dtype)
    if kv_cache_quant_mode == 3:
        rows = _tiled(ckv, kr, kind, k_nope_clip_alpha, tile_size, name)
        slots.put(kv_cache=(kv_cache, rows.view(kv_cache.dtype)))
    else:
        if kv_cache_quant_mode:
            ckv = _encode(ckv * _key_scale(name, quant_scale_ckv, latent), kind)
        else:
            ckv = ckv.to(dtype)
        if kv_cache_quant_mode == 2:
            require(
                quant_scale_ckr is not None,
                f"{name}: quant_scale_ckr is None; kv_cache_quant_mode 2 needs it.",
            )
            require(
                quant_scale_ckr.numel() in (1, kr.size(1)),
                f"{name}: quant_scale_ckr has shape {list(quant_scale_ckr.shape)}; allowed: 1 or "
                f"{kr.size(1)} numbers.",
            )
            kr = _encode(wide(kr) * wide(quant_scale_ckr).flatten(), kind)
        slots.put(kv_cache=(kv_cache, ckv), kr_cache=(kr_cache, kr))
    if norm_scale is not None and products.kind != _MX:
        norm_scale = norm_scale.view(-1, 1)
    return (
        q.contiguous().view(*lead, heads, latent), q_rope.to(dtype).view(*lead, heads, sin.size(1)), q_scale,
        norm, norm_scale,
    )  # fmt: skip


def _key_scale(name, scale, latent: int):
    require(
        scale is not None and scale.numel() in (1, latent),
        f"{name}: quant_scale_ckv is {'None' if scale is None else list(scale.shape)}; allowed: 1"
        + (f" or {latent} numbers." if latent > 1 else " number."),
    )
    return wide(scale).flatten()


@implements("npu_mla_prolog_v2")
def npu_mla_prolog_v2(
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
    rope_sin, rope_cos, cache_index, kv_cache, kr_cache, *, dequant_scale_x=None,
    dequant_scale_w_dq=None, dequant_scale_w_uq_qr=None, dequant_scale_w_dkv_kr=None,
    quant_scale_ckv=None, quant_scale_ckr=None, smooth_scales_cq=None, rmsnorm_epsilon_cq=1e-05,
    rmsnorm_epsilon_ckv=1e-05, cache_mode="PA_BSND", name="npu_mla_prolog_v2",
):  # fmt: skip
    """Modes follow from dtypes and given scales. The caches are changed in place, as on Ascend."""
    whole = token_x.dtype == torch.int8
    keys = 0
    if quant_scale_ckv is not None:
        keys = 1 if quant_scale_ckr is None else 2
    q, q_rope, scale, _, _ = _prolog(
        name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq,
        rmsnorm_gamma_ckv, rope_sin, rope_cos, kv_cache, kr_cache, cache_index=cache_index,
        dequant_scale_x=dequant_scale_x, dequant_scale_w_dq=dequant_scale_w_dq,
        dequant_scale_w_uq_qr=dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr=dequant_scale_w_dkv_kr,
        quant_scale_ckv=quant_scale_ckv, quant_scale_ckr=quant_scale_ckr,
        smooth_scales_cq=smooth_scales_cq, rmsnorm_epsilon_cq=rmsnorm_epsilon_cq,
        rmsnorm_epsilon_ckv=rmsnorm_epsilon_ckv, cache_mode=cache_mode,
        weight_quant_mode=2 if whole else int(weight_uq_qr.dtype == torch.int8),
        kv_cache_quant_mode=keys, query_quant_mode=int(whole and keys == 1),
    )  # fmt: skip
    scale = q_rope.new_zeros(1, dtype=torch.float32) if scale is None else scale
    return q, q_rope, kv_cache.view_as(kv_cache), kr_cache.view_as(kr_cache), scale


@implements("npu_mla_prolog")
def npu_mla_prolog(*args, **kwargs):
    return npu_mla_prolog_v2(*args, **kwargs, name="npu_mla_prolog")[:4]


npu_mla_prolog.__signature__ = inspect.signature(npu_mla_prolog_v2)


@implements("npu_mla_prolog_v3")
def npu_mla_prolog_v3(
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
    rope_sin, rope_cos, kv_cache, kr_cache, *, cache_index=None, dequant_scale_x=None,
    dequant_scale_w_dq=None, dequant_scale_w_uq_qr=None, dequant_scale_w_dkv_kr=None,
    quant_scale_ckv=None, quant_scale_ckr=None, smooth_scales_cq=None, actual_seq_len=None,
    k_nope_clip_alpha=None, rmsnorm_epsilon_cq=1e-05, rmsnorm_epsilon_ckv=1e-05,
    cache_mode="PA_BSND", query_norm_flag=False, weight_quant_mode=0, kv_cache_quant_mode=0,
    query_quant_mode=0, ckvkr_repo_mode=0, quant_scale_repo_mode=0, tile_size=128, qc_qr_scale=1.0,
    kc_scale=1.0, token_x_dtype=None, weight_dq_dtype=None, weight_uq_qr_dtype=None,
    weight_dkv_kr_dtype=None, kv_cache_dtype=None, name="npu_mla_prolog_v3",
):  # fmt: skip
    _check_modes(
        name, weight_quant_mode, kv_cache_quant_mode, query_quant_mode, ckvkr_repo_mode,
        quant_scale_repo_mode,
    )  # fmt: skip
    q, q_rope, scale, norm, norm_scale = _prolog(
        name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq,
        rmsnorm_gamma_ckv, rope_sin, rope_cos, kv_cache, kr_cache, cache_index=cache_index,
        dequant_scale_x=dequant_scale_x, dequant_scale_w_dq=dequant_scale_w_dq,
        dequant_scale_w_uq_qr=dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr=dequant_scale_w_dkv_kr,
        quant_scale_ckv=quant_scale_ckv, quant_scale_ckr=quant_scale_ckr,
        smooth_scales_cq=smooth_scales_cq, rmsnorm_epsilon_cq=rmsnorm_epsilon_cq,
        rmsnorm_epsilon_ckv=rmsnorm_epsilon_ckv, cache_mode=cache_mode,
        weight_quant_mode=weight_quant_mode, kv_cache_quant_mode=kv_cache_quant_mode,
        query_quant_mode=query_quant_mode, actual_seq_len=actual_seq_len,
        k_nope_clip_alpha=k_nope_clip_alpha, tile_size=tile_size, qc_qr_scale=qc_qr_scale,
        kc_scale=kc_scale, kv_cache_dtype=kv_cache_dtype,
    )  # fmt: skip
    none = q_rope.new_empty(0, dtype=torch.float32)
    scale = none if scale is None else scale
    if not query_norm_flag:
        return q, q_rope, scale, q_rope.new_empty(0), none.clone()
    norm = norm.view(*token_x.shape[:-1], norm.size(-1))
    return q, q_rope, scale, norm, none.clone() if norm_scale is None else norm_scale


def _check_modes(name, weights, keys, query, rope_stored, scales_stored) -> None:
    for what, value, allowed in (
        ("weight_quant_mode", weights, tuple(_WEIGHTS)), ("kv_cache_quant_mode", keys, (0, 1, 2, 3)),
        ("query_quant_mode", query, (0, 1)),
    ):  # fmt: skip
        require(
            value in allowed,
            f"{name}: {what} is {value}; allowed: {', '.join(str(n) for n in allowed)}.",
            "VALUE",
        )
    require(
        query == 0 or keys == 1,
        f"{name}: query_quant_mode is 1 and kv_cache_quant_mode {keys}; allowed with it: 1.",
        "VALUE",
    )
    combined = int(keys == 3)
    require(
        rope_stored == combined and scales_stored == combined,
        f"{name}: ckvkr_repo_mode is {rope_stored} and quant_scale_repo_mode {scales_stored}; with "
        f"kv_cache_quant_mode {keys} both must be {combined}.",
        "VALUE",
    )


@implements("npu_mla_prolog_v3_functional")
def npu_mla_prolog_v3_functional(*args, **kwargs):
    caches = [cache.clone() for cache in args[9:11]]
    found = npu_mla_prolog_v3(
        *args[:9], *caches, *args[11:], **kwargs, name="npu_mla_prolog_v3_functional"
    )
    return *found, *caches


npu_mla_prolog_v3_functional.__signature__ = inspect.signature(npu_mla_prolog_v3)
