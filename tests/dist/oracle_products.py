# SPDX-License-Identifier: Apache-2.0
"""Matrix products with collectives, as one process computes them: lists with an entry for each rank.

Plain PyTorch on the CPU in float64, written from Ascend's documents; no operator of npu is called.
"""

import torch


def wide(x):
    return None if x is None else x.double()


def power(scale):
    """2^(byte - 127) of e8m0 bytes."""
    return 2.0 ** (scale.view(torch.uint8).double() - 127)


def mx_rows(x, scale):
    """The numbers of fp8 rows (m, k) with scales (m, ceil(k / 64), 2)."""
    each = power(scale).flatten(-2).repeat_interleave(32, -1)[..., : x.shape[-1]]
    return wide(x) * each


def mx_columns(w, scale):
    """The numbers of an fp8 weight (k, n) with scales (ceil(k / 64), n, 2)."""
    return mx_rows(w.transpose(-1, -2), scale.transpose(-2, -3)).transpose(-1, -2)


def blocks(x, scale, rows=128, columns=128):
    """The numbers of a matrix with one scale for each block."""
    each = wide(scale).repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    return wide(x) * each[: x.shape[0], : x.shape[1]]


def plus(y, bias):
    return y if bias is None else y + wide(bias)


def exchange(parts):
    """All-to-all: parts[source][destination] become parts[destination][source]."""
    return [list(row) for row in zip(*parts, strict=True)]


# ---- rows gathered before the product, or summed and scattered after it -----------------


def all_gather_mm(x, w, bias=None, factor=1.0):
    """(y, gathered) of each rank. x and w are lists of the ranks' dequantised matrices.

    `factor` is x1_scale * x2_scale of one number each, which multiplies the bias too.
    """
    rows = torch.cat([wide(each) for each in x])
    biases = bias or [None] * len(x)
    return [(factor * plus(rows @ wide(each), b), rows) for each, b in zip(w, biases, strict=True)]


def mm_reduce_scatter(x, w, bias=None, factor=1.0):
    """y of each rank: its rows of the sum, in which the bias of every rank counts."""
    biases = bias or [None] * len(x)
    total = sum(plus(factor * (wide(a) @ wide(b)), c) for a, b, c in zip(x, w, biases, strict=True))
    return list(total.chunk(len(x)))


# ---- all-to-all of rows before, or of columns after -------------------------------------


def swapped_rows(x):
    """Rank r gets chunk r of every rank's rows; the chunks stand side by side, (BS / R, R * H)."""
    received = exchange([list(each.chunk(len(x))) for each in x])
    return [torch.cat(parts, 1) for parts in received]


def all_to_all_mm(x, w, bias=None):
    """(y, exchanged rows) of each rank."""
    biases = bias or [None] * len(x)
    return [
        (plus(p @ wide(each), b), p)
        for p, each, b in zip(swapped_rows([wide(t) for t in x]), w, biases, strict=True)
    ]


def mm_all_to_all(x, w, bias=None):
    """(R * BS, H2 / R) of each rank: chunk r of the columns goes to rank r."""
    biases = bias or [None] * len(x)
    products = [plus(wide(a) @ wide(b), c) for a, b, c in zip(x, w, biases, strict=True)]
    received = exchange([list(y.chunk(len(x), 1)) for y in products])
    return [torch.cat(parts) for parts in received]


def row_quantised(p, dtype, smooth=None):
    """(numbers after the cast, scale of each row): max / 448 or 57344, 1 for rows of zeros."""
    p = p if smooth is None else p * wide(smooth)
    scale = p.abs().amax(1) / torch.finfo(dtype).max
    scale = torch.where(scale == 0, 1.0, scale)
    return (p / scale[:, None]).float().to(dtype).double(), scale


def all_to_all_dynamic_mm(x, w, w_scale, dtype, smooth=None, bias=None):
    """(y, exchanged rows): rows are quantised after the exchange, weights per column before it."""
    found, biases = [], bias or [None] * len(x)
    for p, each, s, b in zip(swapped_rows([wide(t) for t in x]), w, w_scale, biases, strict=True):
        q, scale = row_quantised(p, dtype, smooth)
        found.append((plus(q @ wide(each) * scale[:, None] * wide(s), b), p))
    return found


def all_to_all_row_scale_mm(x, x_scale, w, w_scale, bias=None):
    """(y, exchanged rows): x_scale (BS) travels with its rows."""
    scaled = [wide(a) * wide(s)[:, None] for a, s in zip(x, x_scale, strict=True)]
    biases = bias or [None] * len(x)
    plain = swapped_rows([wide(t) for t in x])
    return [
        (plus(p @ wide(each) * wide(s), b), q)
        for p, q, each, s, b in zip(swapped_rows(scaled), plain, w, w_scale, biases, strict=True)
    ]


# ---- rows sent to the ranks of their experts --------------------------------------------
# Counts are rank-major: send[r][d * e + i] rows of rank r go to expert i of rank d, and recv[r][s * e + i]
# rows of rank s reach expert i of rank r.


def receive_counts(send, experts):
    """recv_counts of each rank from all send_counts."""
    ranks = len(send)
    return [
        [send[s][r * experts + i] for s in range(ranks) for i in range(experts)]
        for r in range(ranks)
    ]


def split_by(x, counts):
    return list(torch.split(x, list(counts)))


def alltoallv(x, send, experts):
    """Rows of each rank in the order local expert, then source rank."""
    ranks = len(x)
    pieces = [split_by(each, counts) for each, counts in zip(x, send, strict=True)]
    return [
        torch.cat([pieces[s][r * experts + i] for i in range(experts) for s in range(ranks)])
        for r in range(ranks)
    ]


def back(x, send, experts):
    """The way back: `send` are the counts of the way there; rows return to the order they had."""
    ranks = len(x)
    counts = receive_counts(send, experts)
    pieces = []
    for r in range(ranks):
        sizes = [counts[r][s * experts + i] for i in range(experts) for s in range(ranks)]
        pieces.append(split_by(x[r], sizes))
    return [
        torch.cat([pieces[d][i * ranks + r] for d in range(ranks) for i in range(experts)])
        for r in range(ranks)
    ]


def by_expert(x, w, send, rank, experts):
    """The rows of each local expert, in alltoallv's order, times the expert's weight."""
    counts = receive_counts(send, experts)[rank]
    sizes = [sum(counts[i::experts]) for i in range(experts)]
    rows = split_by(wide(x), sizes)
    return torch.cat([part @ wide(each) for part, each in zip(rows, w, strict=True)])


def alltoallv_gmm(x, w, send, experts, mm_x=None, mm_w=None):
    """(gmm_y, mm_y or None, permute_out) of each rank."""
    moved = alltoallv([wide(t) for t in x], send, experts)
    return [
        (
            by_expert(p, w[r], send, r, experts),
            None if mm_x is None else wide(mm_x[r]) @ wide(mm_w[r]),
            p,
        )
        for r, p in enumerate(moved)
    ]


def gmm_alltoallv(x, w, send, experts, mm_x=None, mm_w=None):
    """(y, mm_y or None) of each rank; x is expert-major, y in the order before alltoallv.

    `send` are the counts of the way there: a rank's recv_counts here are its send_counts there.
    """
    products = [by_expert(each, w[r], send, r, experts) for r, each in enumerate(x)]
    returned = back(products, send, experts)
    return [
        (y, None if mm_x is None else wide(mm_x[r]) @ wide(mm_w[r])) for r, y in enumerate(returned)
    ]
