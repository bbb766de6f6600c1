# SPDX-License-Identifier: Apache-2.0
"""Writing and reading at positions, and paged caches of keys and values."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require


def _places(x, indices, name):
    count = indices.size(-1)
    require(
        0 < count <= x.dim(),
        f"{name}: the last size of indices is {count}; the input has {x.dim()} dimensions.",
    )
    return indices.to(torch.int64).unbind(-1)


@implements("npu_scatter_nd_update")
def npu_scatter_nd_update(input, indices, updates):
    return input.index_put(
        _places(input, indices, "npu_scatter_nd_update"), updates.to(input.dtype)
    )


@implements("npu_scatter_nd_update_")
def npu_scatter_nd_update_(input, indices, updates):
    return input.index_put_(
        _places(input, indices, "npu_scatter_nd_update_"), updates.to(input.dtype)
    )


def _windows(x, indices, updates, axis, name):
    """Positions along the axis where each batch's updates are written, shaped as updates."""
    require(
        indices.dim() in (1, 2), f"{name}: indices has {indices.dim()} dimensions; allowed: 1, 2."
    )
    require(
        updates.dim() == x.dim(),
        f"{name}: updates has {updates.dim()} dimensions and the input {x.dim()}; they must be the same.",
    )
    dim = axis % x.dim()
    require(dim != 0, f"{name}: axis is {axis}; the first dimension is the batch.", "VALUE")
    starts = (indices if indices.dim() == 1 else indices[:, 1]).to(torch.int64)
    batches = (
        torch.arange(starts.size(0), device=x.device)
        if indices.dim() == 1
        else indices[:, 0].to(torch.int64)
    )
    shape = [1] * x.dim()
    shape[0], shape[dim] = starts.size(0), updates.size(dim)
    along = (starts[:, None] + torch.arange(updates.size(dim), device=x.device)).view(shape)
    whole = [
        torch.arange(n, device=x.device).view([-1 if d == i else 1 for i in range(x.dim())])
        for d, n in enumerate(updates.shape)
    ]
    whole[0] = batches.view([-1] + [1] * (x.dim() - 1))
    whole[dim] = along
    return whole


@implements("scatter_update")
def scatter_update(input, indices, updates, axis):
    return input.index_put(_windows(input, indices, updates, axis, "scatter_update"), updates)


@implements("scatter_update_")
def scatter_update_(input, indices, updates, axis):
    return input.index_put_(_windows(input, indices, updates, axis, "scatter_update_"), updates)


def _rows_of(cache, mode: str, name: str):
    """A view (blocks, block_size, N, D) of a cache."""
    require(mode in ("Norm", "PA_NZ"), f"{name}: cache_mode is {mode}; allowed: Norm, PA_NZ.")
    require(cache.dim() == 4, f"{name}: a cache has {cache.dim()} dimensions; allowed: 4.")
    return cache if mode == "Norm" else cache.transpose(1, 2)


def _written(cache, rows, slots, mode: str, name: str):
    view = _rows_of(cache, mode, name)
    size = view.size(1)
    require(
        rows.dtype == cache.dtype,
        f"{name}: a cache is {cache.dtype}; it must be the {rows.dtype} of what is written.",
        "TYPE",
    )
    if mode == "PA_NZ":
        rows = rows.flatten(1).unflatten(1, (-1, cache.size(3)))
    slots = slots.flatten().to(torch.int64)
    real = slots >= 0
    # A row to be skipped writes the first real one again; if there is none, the old content.
    numbers = torch.arange(slots.size(0), device=slots.device)
    source = torch.where(real, numbers, real.to(torch.int8).argmax()) if slots.size(0) else numbers
    slots = slots.index_select(0, source).clamp(min=0)
    block, place = slots // size, slots % size
    kept = torch.where(real.any(), rows.index_select(0, source), view[block, place])
    return (block, place), kept


def _put(cache, rows, slots, mode, name) -> None:
    where, kept = _written(cache, rows, slots, mode, name)
    _rows_of(cache, mode, name).index_put_(where, kept)


def _check_slots(name, key, slots, **refused) -> None:
    refuse_given(name, **refused)
    require(
        slots.numel() == key.size(0),
        f"{name}: slot_mapping has {slots.numel()} numbers for {key.size(0)} tokens; give as many.",
    )


@implements("npu_scatter_pa_kv_cache")
def npu_scatter_pa_kv_cache(
    key, value, key_cache, value_cache, slot_mapping, *, compress_lens=None, compress_seq_offsets=None,
    seq_lens=None, cache_mode="PA_NZ",
):  # fmt: skip
    name = "npu_scatter_pa_kv_cache"
    _check_slots(
        name,
        key,
        slot_mapping,
        compress_lens=compress_lens,
        compress_seq_offsets=compress_seq_offsets,
        seq_lens=seq_lens,
    )
    _put(key_cache, key, slot_mapping, cache_mode, name)
    _put(value_cache, value, slot_mapping, cache_mode, name)


@implements("npu_scatter_pa_kv_cache_functional")
def npu_scatter_pa_kv_cache_functional(
    key, value, key_cache, value_cache, slot_mapping, *, compress_lens=None, compress_seq_offsets=None,
    seq_lens=None, cache_mode="PA_NZ",
):  # fmt: skip
    caches = key_cache.clone(), value_cache.clone()
    npu_scatter_pa_kv_cache(
        key, value, *caches, slot_mapping, compress_lens=compress_lens,
        compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens, cache_mode=cache_mode,
    )  # fmt: skip
    return caches


@implements("atb::_npu_reshape_and_cache")
def _npu_reshape_and_cache(key, value, key_cache, value_cache, slot_indices):
    name = "_npu_reshape_and_cache"
    _check_slots(name, key, slot_indices)
    _put(key_cache, key, slot_indices, "Norm", name)
    _put(value_cache, value, slot_indices, "Norm", name)


@implements("atb::_npu_reshape_and_cache_siso")
def _npu_reshape_and_cache_siso(key, key_cache, slot_indices):
    name = "_npu_reshape_and_cache_siso"
    _check_slots(name, key, slot_indices)
    _put(key_cache, key, slot_indices, "Norm", name)


def _gathered(name, cache, tables, lengths, like, offsets):
    """Rows of each sequence one after another; blocks outside the cache give zeros."""
    require(
        like.dtype == cache.dtype and like.dim() > 0 and like[:1].numel() == cache[:1, :1].numel(),
        f"{name}: a result is {like.dtype} {list(like.shape)}; its rows must be those of the cache, "
        f"{cache.dtype} {list(cache.shape[2:])}.",
    )
    size, total = cache.size(1), like.size(0)
    ends = torch.cumsum(lengths, 0)
    if type(ends) is torch.Tensor and ends.device.type != "meta" and ends.numel():
        needed = int(ends[-1])
        require(
            bool((lengths >= 0).all()) and needed <= total,
            f"{name}: seq_lens asks for {needed} rows, but a result has {total}.",
            "VALUE",
        )
    rows = torch.arange(total, device=cache.device)
    sequence = (rows[:, None] >= ends[None, :]).sum(1)
    real = sequence < lengths.size(0)
    sequence = sequence.clamp(max=max(lengths.size(0) - 1, 0))
    place = rows - (ends - lengths)[sequence]
    column = place // size
    if offsets is not None:
        if type(offsets) is torch.Tensor and offsets.device.type != "meta":
            require(
                offsets.shape == lengths.shape and bool((offsets >= 0).all()),
                f"{name}: seq_offset is {offsets.tolist()}; it takes a number for each of the "
                f"{lengths.numel()} sequences, none negative.",
                "VALUE",
            )
        column = column + offsets.to(torch.int64)[sequence] // size
    real = real & (column < tables.size(1))
    block = tables.to(torch.int64)[sequence, column.clamp(max=tables.size(1) - 1)]
    real = real & (block >= 0) & (block < cache.size(0))
    found = cache[block.clamp(0, cache.size(0) - 1), place % size]
    shape = [-1] + [1] * (found.dim() - 1)
    return torch.where(real.view(shape), found, found.new_zeros(())).view_as(like)


def _lengths(name, seq_lens, cumulative: bool, tables):
    """How many rows each sequence has."""
    lengths = seq_lens.to(torch.int64)
    lengths = lengths[1:] - lengths[:-1] if cumulative else lengths
    require(
        tables.dim() == 2 and tables.size(0) == lengths.size(0),
        f"{name}: block_tables has shape {list(tables.shape)}; {lengths.size(0)} sequences need as many rows.",
    )
    return lengths


@implements("npu_gather_pa_kv_cache")
def npu_gather_pa_kv_cache(
    key_cache,
    value_cache,
    block_tables,
    seq_lens,
    key,
    value,
    *,
    seq_offset=None,
    is_seq_lens_cumsum=False,
):
    name = "npu_gather_pa_kv_cache"
    lengths = _lengths(name, seq_lens, is_seq_lens_cumsum, block_tables)
    key.copy_(_gathered(name, key_cache, block_tables, lengths, key, seq_offset))
    value.copy_(_gathered(name, value_cache, block_tables, lengths, value, seq_offset))


@implements("npu_gather_pa_kv_cache_functional")
def npu_gather_pa_kv_cache_functional(
    key_cache,
    value_cache,
    block_tables,
    seq_lens,
    key,
    value,
    *,
    seq_offset=None,
    is_seq_lens_cumsum=False,
):
    name = "npu_gather_pa_kv_cache_functional"
    lengths = _lengths(name, seq_lens, is_seq_lens_cumsum, block_tables)
    return (
        _gathered(name, key_cache, block_tables, lengths, key, seq_offset),
        _gathered(name, value_cache, block_tables, lengths, value, seq_offset),
    )


@implements("npu_gather_sparse_index")
def npu_gather_sparse_index(input, index):
    return input[index.to(torch.int64)]


@implements("copy_memory_")
def copy_memory_(input, src, non_blocking=False):
    require(
        input.dtype == src.dtype and input.numel() == src.numel(),
        f"copy_memory_: the input is {input.dtype} {list(input.shape)} and src {src.dtype} {list(src.shape)}; "
        "dtype and number of elements must be the same.",
    )
    return input.copy_(src.view(input.shape), non_blocking)


@implements("npu_prefetch")
def npu_prefetch(input, dependency, max_size, offset=0):
    require(max_size > 0, f"npu_prefetch: max_size is {max_size}; it must be positive.", "VALUE")
    require(offset >= 0, f"npu_prefetch: offset is {offset}; it must not be negative.", "VALUE")


@implements("_npu_format_cast")
def _npu_format_cast(input, acl_format):
    return torch.ops.npu.npu_format_cast(input, acl_format)
