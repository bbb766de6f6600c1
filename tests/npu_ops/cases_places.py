# SPDX-License-Identifier: Apache-2.0
"""Shapes, casts, choice, caches."""

import itertools
import math

import torch
from table import add, ints, rand

ONE = (torch.float32,)

# ---- shapes
add("npu_transpose", lambda x, p: x.permute(p), rand(2, 3, 4), [2, 0, 1])
for name in ("npu_transpose.out", "npu_transpose_trans_contiguous.out"):
    add(name, lambda x, p, *, out: x.permute(p), rand(2, 3), [1, 0], out=rand(3, 2), dtypes=ONE)
add(
    "npu_confusion_transpose",
    lambda x, p, s, first: x.permute(p).reshape(s),
    rand(2, 3, 4),
    [2, 0, 1],
    [4, 6],
    True,
    label="permute",
    grad=(0,),
)
add(
    "npu_confusion_transpose",
    lambda x, p, s, first: x.reshape(s).permute(p),
    rand(2, 3, 4),
    [1, 0],
    [4, 6],
    False,
    label="reshape",
    grad=(0,),
)
add("npu_reshape", lambda x, s: x.reshape(s), rand(2, 6), [3, 4])
add(
    "npu_reshape.out",
    lambda x, s, *, out: x.reshape(s),
    rand(2, 6),
    [3, 4],
    out=rand(3, 4),
    dtypes=ONE,
)
add("npu_broadcast", lambda x, s: x.expand(s), rand(2, 1), [3, 2, 4])
add(
    "npu_broadcast.out",
    lambda x, s, *, out: x.expand(s),
    rand(2, 1),
    [2, 4],
    out=rand(2, 4),
    dtypes=ONE,
)
add("npu_slice", lambda x, o, s: x[1:3, 0:2], rand(4, 5), [1, 0], [2, 2])
add(
    "npu_slice.out",
    lambda x, o, s, *, out: x[1:3, 0:2],
    rand(4, 5),
    [1, 0],
    [2, 2],
    out=rand(2, 2),
    dtypes=ONE,
)


def padded(x, p):
    out = torch.zeros(x.shape[0] + p[0] + p[1], x.shape[1] + p[2] + p[3], dtype=torch.float64)
    out[p[0] : p[0] + x.shape[0], p[2] : p[2] + x.shape[1]] = x
    return out


add("npu_pad", padded, rand(2, 3), [1, 0, 2, 3])
add(
    "npu_stride_copy",
    lambda x, s, t, o: torch.stack([x.flatten()[1:5:2], x.flatten()[2:6:2]]),
    rand(3, 4),
    [2, 2],
    [1, 2],
    1,
)
add(
    "npu_stride_copy.out",
    lambda x, s, t, o, *, out: x.flatten()[1:5:2],
    rand(3, 4),
    [2],
    [2],
    1,
    out=rand(2),
    dtypes=ONE,
)
add("npu_view_copy", lambda x, y, b: y, rand(2, 3), rand(2, 3), False)


def one_hot(x, n=-1, depth=1, on=1, off=0):
    out = torch.full((*x.shape, depth), float(off), dtype=torch.float64)
    for at, v in zip(
        torch.cartesian_prod(*[torch.arange(s) for s in x.shape]).reshape(x.numel(), -1).tolist(),
        x.flatten().tolist(),
    ):
        if 0 <= v < depth:
            out[(*at, v)] = on
    return out


add(
    "npu_one_hot",
    one_hot,
    torch.tensor([[0, 2], [-1, 5]], dtype=torch.int32),
    -1,
    4,
    3,
    -1,
    dtypes=ONE,
)
add(
    "npu_sort_v2",
    lambda x, d, r: torch.tensor(
        [sorted(row, reverse=r) for row in x.tolist()], dtype=torch.float64
    ),
    rand(3, 5),
    -1,
    True,
)
add(
    "npu_sort_v2.out",
    lambda x, *, out: torch.tensor(sorted(x.tolist()), dtype=torch.float64),
    rand(5),
    out=rand(5),
    dtypes=ONE,
)
for name, f in (("npu_max.dim", max), ("npu_min.dim", min)):

    def along(x, d, keep=False, f=f):
        values = torch.stack([f(row.unbind()) for row in x])
        places = torch.tensor([row.tolist().index(f(row.tolist())) for row in x], dtype=torch.int32)
        return values, places

    add(name, along, rand(4, 5), 1, grad=(0,), dtypes=ONE)
    back = name.split(".")[0] + "_backward"

    def scattered(g, d, i, s, k):
        out = torch.zeros(s, dtype=torch.float64)
        for r in range(s[0]):
            out[r, int(i[r])] = g[r]
        return out

    add(back, scattered, rand(4), 1, torch.tensor([0, 3, 1, 4], dtype=torch.int32), [4, 5], False)
add("npu_dtype_cast", lambda x, d: x, rand(3, 4), 6, grad=())
add("npu_dtype_cast", lambda x, d: x.to(torch.int32), rand(3, 4), 3, label="int32")
add("_npu_dtype_cast", lambda x, d: x, rand(3), torch.float32)
add("_npu_dtype_cast_backward", lambda x, d: x, rand(3), torch.float32)
add("npu_dtype_cast_backward", lambda x, d: x, rand(3), torch.float32)
add("npu_dtype_cast_", lambda x, y: y, rand(3), rand(3))
add("reverse", lambda x, a: torch.stack([r for r in x.unbind()][::-1]), rand(3, 4), [0])
add("one_", lambda x: torch.ones_like(x), rand(3, 4))


def sign_pack(x, size):
    bits = [1 if v >= 0 else 0 for v in x.tolist()]
    bits += [0] * (-len(bits) % 8)
    out = [sum(b << k for k, b in enumerate(bits[i : i + 8])) for i in range(0, len(bits), 8)]
    return torch.tensor(out, dtype=torch.uint8).reshape(size, -1)


add("npu_sign_bits_pack", sign_pack, rand(29), 2)
add(
    "npu_sign_bits_unpack",
    lambda x, s, d: torch.tensor(
        [1.0 if v >> k & 1 else -1.0 for v in x.tolist() for k in range(8)], dtype=torch.float64
    ).reshape(s, -1),
    torch.tensor([3, 129, 255], dtype=torch.uint8),
    2,
    torch.float32,
    dtypes=ONE,
)


def top_k_p(x, p=None, k=None):
    out = x.clone()
    for r in range(x.shape[0]):
        order = sorted(range(x.shape[1]), key=lambda i: (float(x[r, i]), i))
        if k is not None:
            bound = x[r, order[-int(k[r])]].clone()
            for i in order:
                if x[r, i] < bound:
                    out[r, i] = -math.inf
        if p is not None:
            mass, soft = 0.0, torch.softmax(out[r], -1)
            for i in order[:-1]:
                mass += float(soft[i])
                if mass <= 1 - float(p[r]):
                    out[r, i] = -math.inf
    return out


add(
    "npu_top_k_top_p",
    top_k_p,
    rand(3, 8),
    rand(3, low=0.3, high=0.9),
    torch.tensor([3, 8, 1], dtype=torch.int32),
    label="both",
    dtypes=ONE,
)
add("npu_top_k_top_p", top_k_p, rand(3, 8), rand(3, low=0.3, high=0.9), label="p", dtypes=ONE)


# ---- caches
def scatter_nd(x, i, u):
    for at, row in zip(i.reshape(-1, i.shape[-1]).tolist(), u.reshape(-1, *u.shape[i.dim() - 1 :])):
        x[tuple(at)] = row
    return x


for name in ("npu_scatter_nd_update", "npu_scatter_nd_update_"):
    add(name, scatter_nd, rand(4, 3, 2), torch.tensor([[0, 1], [3, 2]]), rand(2, 2), label="two")
    add(name, scatter_nd, rand(4, 3), torch.tensor([[2], [0]]), rand(2, 3), label="rows")


def window(x, i, u, axis):
    for b in range(u.shape[0]):
        batch, start = (b, int(i[b])) if i.dim() == 1 else (int(i[b, 0]), int(i[b, 1]))
        x[batch].narrow(axis % x.dim() - 1, start, u.shape[axis]).copy_(u[b])
    return x


for name in ("scatter_update", "scatter_update_"):
    add(name, window, rand(3, 2, 6, 4), torch.tensor([1, 0, 4]), rand(3, 2, 2, 4), -2, label="each")
    add(
        name, window, rand(3, 6, 4), torch.tensor([[2, 1], [0, 3]]), rand(2, 1, 4), 1, label="pairs"
    )

SLOTS = torch.tensor([5, -1, 0, 11], dtype=torch.int32)


def stored(key, value, kc, vc, slots, *, cache_mode="Norm"):
    for rows, cache in ((key, kc), (value, vc)):
        for row, s in zip(rows, slots.tolist()):
            if s < 0:
                continue
            if cache_mode == "Norm":
                cache[s // cache.shape[1], s % cache.shape[1]] = row
            else:
                for c, v in enumerate(row.flatten()):
                    cache[
                        s // cache.shape[2],
                        c // cache.shape[3],
                        s % cache.shape[2],
                        c % cache.shape[3],
                    ] = v
    return kc, vc


norm = (rand(4, 2, 8), rand(4, 2, 8), rand(3, 4, 2, 8), rand(3, 4, 2, 8))
nz = (rand(4, 2, 16), rand(4, 2, 16), rand(3, 2, 4, 16), rand(3, 2, 4, 16))
add("npu_scatter_pa_kv_cache_functional", stored, *norm, SLOTS, cache_mode="Norm", label="norm")
add("npu_scatter_pa_kv_cache_functional", stored, *nz, SLOTS, cache_mode="PA_NZ", label="nz")
add(
    "npu_scatter_pa_kv_cache_functional",
    stored,
    *norm,
    torch.full((4,), -1),
    cache_mode="Norm",
    label="none",
)


def fetched(kc, vc, tables, lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False):
    lengths = lens.tolist()
    if is_seq_lens_cumsum:
        lengths = [b - a for a, b in itertools.pairwise(lengths)]
    for cache, out in ((kc, key), (vc, value)):
        at = 0
        for b, n in enumerate(lengths):
            first = 0 if seq_offset is None else int(seq_offset[b]) // cache.shape[1]
            for t in range(n):
                block = int(tables[b, first + t // cache.shape[1]])
                out[at] = cache[block, t % cache.shape[1]] if 0 <= block < cache.shape[0] else 0
                at += 1
    return key, value


TABLES = torch.tensor([[2, 0, 1], [1, 9, 0]], dtype=torch.int32)
pages = (rand(3, 4, 2, 8), rand(3, 4, 2, 8), TABLES)
GP = "npu_gather_pa_kv_cache_functional"
add(GP, fetched, *pages, torch.tensor([5, 6]), rand(11, 2, 8), rand(11, 2, 8), label="lengths")
add(
    GP,
    fetched,
    *pages,
    torch.tensor([0, 5, 11]),
    rand(11, 2, 8),
    rand(11, 2, 8),
    is_seq_lens_cumsum=True,
    label="ends",
)
add(
    GP,
    fetched,
    *pages,
    torch.tensor([5, 3]),
    rand(8, 2, 8),
    rand(8, 2, 8),
    seq_offset=torch.tensor([4, 8]),
    label="offset",
)
add(
    "npu_gather_sparse_index",
    lambda x, i: torch.stack([x[j] for j in i.flatten().tolist()]).reshape(*i.shape, -1),
    rand(5, 3),
    ints(0, 5, 2, 4),
    grad=(0,),
)
add("copy_memory_", lambda x, y: y.reshape(x.shape), rand(2, 3), rand(6))
