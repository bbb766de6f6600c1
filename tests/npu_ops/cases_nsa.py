# SPDX-License-Identifier: Apache-2.0
"""Native sparse attention: compressed keys, the blocks they point to, attention over those blocks."""

import torch
from cases_sparse import attend_rows, backward_of, sequences, together
from table import add, rand

ONE = (torch.float32,)
TABLE = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)


# ---- npu_nsa_compress
def compress(x, weight, block, stride, *, actual_seq_len=None):
    rows, start = [], 0
    for end in actual_seq_len or [x.shape[0]]:
        for i in range(start, end - block + 1, stride):
            rows.append(sum(weight[w][:, None] * x[i + w] for w in range(block)))
        start = end
    return torch.stack(rows) if rows else x[:0] + 0 * weight.sum()


def compress_grads(grad, x, weight, block, stride, **rest):
    return backward_of(compress, (0, 1), slice(None))(grad, (x, weight), block, stride, **rest)


# 0, 1 and 3 windows; the third sequence is shorter than a window.
_lengths = {"actual_seq_len": [4, 13, 16]}
_x = rand(16, 2, 3)
add("npu_nsa_compress", compress, _x, rand(4, 2), 4, 2, grad=(0, 1), **_lengths)
add("npu_nsa_compress", compress, _x, rand(2, 2), 2, 3, label="gaps", grad=(0, 1), **_lengths)
add("npu_nsa_compress", compress, rand(2, 16, 3).transpose(0, 1), rand(4, 2), 4, 2, label="strided", **_lengths)  # fmt: skip
add("npu_nsa_compress", compress, rand(3, 2, 3), rand(4, 2), 4, 2, label="no-rows", actual_seq_len=[3])  # fmt: skip
add("npu_nsa_compress", compress, rand(1, 1, 1), rand(1, 1), 1, 1, label="one", actual_seq_len=[1])
for _block, _stride in ((4, 2), (2, 3)):
    _weight = rand(_block, 2)
    _rows = compress(_x, _weight, _block, _stride, **_lengths).shape
    add("npu_nsa_compress_grad", compress_grads, rand(*_rows), _x, _weight, _block, _stride,
        label=f"{_block}-{_stride}", **_lengths)  # fmt: skip


def compress_infer(
    pages, weight, slots, block, stride, page, *, block_table, actual_seq_len, cache
):
    cache = cache.clone()
    for b, length in enumerate(actual_seq_len):
        if length >= block and (length - block) % stride == 0:
            tokens = sequences(pages, "PA", actual_seq_len, block_table)[b][-block:]
            cache[slots[b]] = (weight[:, :, None] * tokens).sum(0)
    return cache


_pages = rand(4, 4, 2, 3)
for _lens in ([6, 4], [5, 8], [2, 3]):
    add("npu_nsa_compress_infer.cache", compress_infer, _pages, rand(4, 2), torch.tensor([5, 2], dtype=torch.int32), 4, 2, 4,
        block_table=TABLE, actual_seq_len=_lens, cache=rand(7, 2, 3), label=str(_lens[0]))  # fmt: skip


# ---- npu_nsa_compress_attention
def windows(p, blocks, block, stride, select):
    """Importance of each selection block, from the probabilities of the compressed keys."""
    found = []
    for j in range(blocks):
        places = [
            (j + 1) * (select // stride) - m - n
            for m in range(select // stride)
            for n in range(block // stride)
        ]
        found.append(sum([p[at] for at in places if 0 <= at < len(p)], p.new_zeros(())))
    return torch.stack(found)


def best(scores, count):
    """The highest first, the lowest index first among equals."""
    return sorted(range(len(scores)), key=lambda j: (-round(float(scores[j]), 9), j))[:count]


def probabilities(q, keys, scale):
    e = torch.exp(keys @ q * scale - (keys @ q * scale).max()) if len(keys) else keys[:, 0]
    return e / e.sum() if len(keys) else e


def compress_attention(q, k, v, scale, heads, block, stride, select, count, *, topk_mask=None, atten_mask=None,
                       actual_seq_qlen=None, actual_cmp_seq_kvlen=None, actual_sel_seq_kvlen=None):  # fmt: skip
    group = heads // k.shape[1]
    found, tops = [], []
    starts = [0, *actual_sel_seq_kvlen]
    for b, (qs, ks, vs) in enumerate(
        zip(
            sequences(q, "TND", actual_seq_qlen),
            sequences(k, "TND", actual_cmp_seq_kvlen),
            sequences(v, "TND", actual_cmp_seq_kvlen),
            strict=True,
        )
    ):

        def kept(i, _, ks=ks):
            return [j for j in range(len(ks)) if atten_mask is None or not atten_mask[i, j]]

        found.append(attend_rows(qs, ks, vs, kept, scale))
        blocks = starts[b + 1] - starts[b]
        chosen = torch.full((len(qs), k.shape[1], count), -1, dtype=torch.int32)
        for i in range(len(qs)):
            for h in range(k.shape[1]):
                score = torch.zeros(blocks, dtype=torch.float64)
                for n in range(h * group, (h + 1) * group):
                    p = torch.zeros(len(ks), dtype=torch.float64)
                    p[kept(i, 0)] = probabilities(qs[i, n].detach(), ks[kept(i, 0), h].detach(), scale)  # fmt: skip
                    score += windows(p, blocks, block, stride, select)
                if topk_mask is not None:
                    score[topk_mask[i, :blocks].bool()] = 23333
                order = best(score, count)
                chosen[i, h, : len(order)] = torch.tensor(order, dtype=torch.int32)
        tops.append(chosen)
    out, top, total = (torch.cat(x) for x in zip(*found, strict=True))
    eight = (*top.shape, 8)
    return (
        out,
        torch.cat(tops),
        top[..., None].expand(eight).detach(),
        total[..., None].expand(eight).detach(),
    )


COMPRESSED = "npu_nsa_compress_attention"
_cmp = (rand(7, 4, 8, low=-1, high=1), rand(15, 2, 8, low=-1, high=1), rand(15, 2, 6))
_ends = {"actual_seq_qlen": [4, 7], "actual_cmp_seq_kvlen": [8, 15], "actual_sel_seq_kvlen": [4, 8]}
# Scores that differ much: the best blocks are the same in all dtypes.
add(COMPRESSED, compress_attention, *_cmp, 0.5, 4, 4, 2, 4, 2, grad=(0, 1, 2), **_ends)
_masks = {"atten_mask": torch.ones(4, 8).triu(5).bool(), "topk_mask": torch.eye(4).bool()}
add(COMPRESSED, compress_attention, *_cmp, 0.5, 4, 4, 2, 4, 3, label="masks", grad=(0, 1, 2), dtypes=ONE, **_masks, **_ends)  # fmt: skip
add(COMPRESSED, compress_attention, *_cmp, 0.5, 4, 4, 4, 8, 1, label="one-block", **_ends)


def compress_attention_infer(q, k, v, scale, heads, heads_kv, select, count, page, block, stride, *, layout, block_table,
                             actual_seq_qlen, actual_cmp_seq_kvlen, actual_sel_seq_kvlen):  # fmt: skip
    k, v = (x.unflatten(2, (heads_kv, -1)) for x in (k, v))
    group = heads // heads_kv
    outs, tops = [], []
    for qs, ks, vs, length in zip(
        sequences(q, layout, actual_seq_qlen),
        sequences(k, "PA", actual_cmp_seq_kvlen, block_table),
        sequences(v, "PA", actual_cmp_seq_kvlen, block_table),
        actual_cmp_seq_kvlen,
        strict=True,
    ):
        outs.append(attend_rows(qs, ks, vs, lambda i, h, ks=ks: list(range(len(ks))), scale)[0])
        blocks = -(-((length - 1) * stride + block) // select)
        chosen = torch.full((len(qs), heads_kv, count), -1, dtype=torch.int32)
        for i in range(len(qs)):
            for h in range(heads_kv):
                score = sum(
                    windows(probabilities(qs[i, n], ks[:, h], scale), blocks, block, stride, select)
                    for n in range(h * group, (h + 1) * group)
                )
                forced = [j for j in dict.fromkeys((0, blocks - 2, blocks - 1)) if 0 <= j < blocks]
                order = forced + [j for j in best(score, blocks) if j not in forced]
                order = order[:count]
                chosen[i, h, : len(order)] = torch.tensor(order, dtype=torch.int32)
        tops.append(chosen)
    return together(outs, q, layout, actual_seq_qlen), together(tops, q, layout, actual_seq_qlen)


_cache = (rand(4, 8, 16, low=-1, high=1), rand(4, 8, 12))
for _layout, _q, _lens in (
    ("TND", rand(2, 4, 8, low=-1, high=1), [1, 2]),
    ("BSND", rand(2, 1, 4, 8, low=-1, high=1), [1, 1]),
):
    add("npu_nsa_compress_attention_infer", compress_attention_infer, _q, *_cache, 0.5, 4, 2, 4, 5, 8, 4, 2, layout=_layout,
        block_table=TABLE, actual_seq_qlen=_lens, actual_cmp_seq_kvlen=[13, 15], actual_sel_seq_kvlen=[7, 8], label=_layout)  # fmt: skip
add("npu_nsa_compress_attention_infer", compress_attention_infer, rand(2, 4, 8), *_cache, 0.5, 4, 2, 4, 5, 8, 4, 2, layout="TND",
    block_table=TABLE, actual_seq_qlen=[1, 2], actual_cmp_seq_kvlen=[3, 13], actual_sel_seq_kvlen=[2, 7], label="few-blocks")  # fmt: skip


# ---- npu_nsa_select_attention
def select_attention(q, k, v, ids, scale, heads, select, count, *, atten_mask=None, actual_seq_qlen=None, actual_seq_kvlen=None):  # fmt: skip
    found = []
    for qs, ks, vs, chosen in zip(
        sequences(q, "TND", actual_seq_qlen),
        sequences(k, "TND", actual_seq_kvlen),
        sequences(v, "TND", actual_seq_kvlen),
        sequences(ids, "TND", actual_seq_qlen),
        strict=True,
    ):

        def kept(i, h, chosen=chosen, ks=ks):
            blocks = [b for b in chosen[i, h].tolist() if b >= 0]
            rows = [j for b in blocks for j in range(b * select, min((b + 1) * select, len(ks)))]
            return [j for j in rows if atten_mask is None or j <= i]

        found.append(attend_rows(qs, ks, vs, kept, scale))
    out, top, total = (torch.cat(x) for x in zip(*found, strict=True))
    eight = (*top.shape, 8)
    return out, top[..., None].expand(eight).detach(), total[..., None].expand(eight).detach()


def select_grads(grad, q, k, v, out, top, total, ids, scale, heads, select, count, **rest):
    call = backward_of(select_attention, (0, 1, 2), 0)
    return call(grad, (q, k, v), ids, scale, heads, select, count, **rest)


SELECT = "npu_nsa_select_attention"
_sel = (rand(7, 4, 8, low=-1, high=1), rand(11, 2, 8, low=-1, high=1), rand(11, 2, 6))
# 7 keys in two blocks of 4, the last one short; 4 keys in one block.
_ids = torch.tensor([[[0, 1], [1, 0]]] * 4 + [[[0, -1], [0, -1]]] * 3, dtype=torch.int32)
_ends = {"actual_seq_qlen": [4, 7], "actual_seq_kvlen": [7, 11]}
# Block 0 is in every list: every causal row keeps a key.
_causal = {"atten_mask": torch.ones(2048, 2048).triu(1).bool()}
for _label, _rest in (("", {}), ("causal", _causal)):
    add(SELECT, select_attention, *_sel, _ids, 0.4, 4, 4, 2, grad=(0, 1, 2), label=_label, **_ends, **_rest)  # fmt: skip
    _out, _top, _total = select_attention(*_sel, _ids, 0.4, 4, 4, 2, **_ends, **_rest)
    add(f"{SELECT}_grad", select_grads, rand(7, 4, 6), *_sel, _out, _top, _total, _ids, 0.4, 4, 4, 2, keep=(5, 6),
        label=_label, **_ends, **_rest)  # fmt: skip


def select_infer(q, k, v, ids, scale, heads, heads_kv, select, count, page, *, layout, block_table, actual_seq_qlen,
                 actual_seq_kvlen):  # fmt: skip
    joined, rows = layout == "BSH", layout
    if joined:
        q, rows = q.unflatten(2, (heads, -1)), "BSND"
    if k.dim() == 3:
        k, v = (x.unflatten(2, (heads_kv, -1)) for x in (k, v))
    outs = []
    for qs, ks, vs, chosen in zip(
        sequences(q, rows, actual_seq_qlen),
        sequences(k, "PA", actual_seq_kvlen, block_table),
        sequences(v, "PA", actual_seq_kvlen, block_table),
        sequences(ids, rows, actual_seq_qlen),
        strict=True,
    ):

        def kept(i, h, chosen=chosen, ks=ks):
            found = []
            for b in chosen[i, h].tolist():
                if b < 0:
                    break
                found += range(b * select, min((b + 1) * select, len(ks)))
            return found

        outs.append(attend_rows(qs, ks, vs, kept, scale)[0])
    out = together(outs, q, rows, actual_seq_qlen)
    return out.flatten(2) if joined else out


_few = torch.tensor([[[0, 3, 1], [2, -1, 1]], [[1, 0, -1], [0, -1, -1]]], dtype=torch.int32)
for _layout, _q, _lens in (
    ("TND", rand(2, 4, 8, low=-1, high=1), [1, 2]),
    ("BSND", rand(2, 1, 4, 8, low=-1, high=1), [1, 1]),
    ("BSH", rand(2, 1, 32, low=-1, high=1), [1, 1]),
):
    add("npu_nsa_select_attention_infer", select_infer, _q, *_cache, _few if _layout == "TND" else _few[:, None], 0.5, 4, 2, 4, 3, 8,
        layout=_layout, block_table=TABLE, actual_seq_qlen=_lens, actual_seq_kvlen=[13, 6], label=_layout)  # fmt: skip
