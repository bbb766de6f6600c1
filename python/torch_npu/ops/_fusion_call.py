# SPDX-License-Identifier: Apache-2.0
"""The checked arguments of npu_fusion_attention and its versions."""

import torch

from torch_npu.ops import _attend as core
from torch_npu.ops._check import require, same_dtype, unsupported


class FusionCall:
    """The checked arguments of one call; knows how to bring tensors to (B, N, S, D)."""

    def __init__(
        self, name, q, k, v, head_num, layout, *, scale, keep_prob, pse=None, pse_type=1, mask=None,
        pre=core.FAR, next_=core.FAR, prefix=None, qlen=None, kvlen=None, mode=0, softmax_layout="",
        sink=None,
    ):  # fmt: skip
        self.name, self.layout, self.heads = name, layout.upper(), head_num
        self.scale, self.keep_prob, self.pse, self.pse_type = scale, keep_prob, pse, pse_type
        self.mask, self.pre, self.next, self.prefix, self.mode = mask, pre, next_, prefix, mode
        self.sink, self.packed_stats = sink, softmax_layout == "TND"
        self._check(q, k, v, softmax_layout)
        self.qlen = self.kvlen = None
        if self.layout == "TND":
            require(
                qlen and kvlen and len(qlen) == len(kvlen),
                f"{name}: the size of actual_seq_qlen and actual_seq_kvlen must be the same and "
                f"cannot be empty, but got {qlen} and {kvlen}.",
            )
            self.qlen = core.lengths_of(qlen, name, "actual_seq_qlen")
            self.kvlen = core.lengths_of(kvlen, name, "actual_seq_kvlen")
        # BSH and SBH: how many heads key and value have follows from query's head size.
        self.kv_heads = k.size(-1) * head_num // q.size(-1) if q.dim() == 3 and q.size(-1) else 1
        self._check_sizes(q, k, v)

    def _check(self, q, k, v, softmax_layout) -> None:
        name = self.name
        require(self.heads > 0, f"{name}: head_num must > 0, but got {self.heads}")
        for what, x in (("query", q), ("key", k), ("value", v)):
            require(
                x.dim() in (3, 4),
                f"{name}: The shapes of the input {what} should be 3 or 4 dimensional, but got "
                f"{x.dim()}-dimensional",
            )
        require(
            self.layout in (*core.LAYOUTS, "TND"),
            f"{name}: The input_layout should be BSH/SBH/BNSD/BSND/TND(case-insensitive), but got "
            f"{self.layout}",
        )
        require(
            0 < self.keep_prob <= 1,
            f"{name}: The keep_prob value must be in range of (0, 1], but got {self.keep_prob}",
        )
        allowed = "[0,5) or (5,8]" if self.layout == "TND" else "[0,6]"
        modes = (0, 1, 2, 3, 4, 6, 7, 8) if self.layout == "TND" else range(7)
        require(
            self.mode in modes,
            f"{name}: The sparse_mode value must be in range of {allowed}, but got {self.mode}",
        )
        require(
            softmax_layout in ("", "TND"),
            f"{name}: only supported softmax_layout=TND, but got {softmax_layout}",
        )
        rank = 4 if self.layout in ("BSND", "BNSD") else 3
        require(
            q.dim() == rank and k.dim() == rank and v.dim() == rank,
            f"{name}: input_layout {self.layout} takes tensors of {rank} dimensions, but got query "
            f"{list(q.shape)}, key {list(k.shape)}, value {list(v.shape)}.",
        )
        if self.layout in ("BSH", "SBH"):
            require(
                q.size(2) % self.heads == 0,
                f"{name}: head_num is {self.heads}, but query's last size {q.size(2)} is no multiple.",
            )
        else:
            heads = q.size(2 if self.layout == "BSND" else 1)
            require(
                heads == self.heads,
                f"{name}: head_num is {self.heads}, but query has {heads} heads.",
            )

    def _check_sizes(self, q, k, v) -> None:
        """Checks that query, key, value and the terms added to their scores agree in dtype and sizes."""
        name = self.name
        same_dtype(name, query=q, key=k, value=v)
        if self.layout == "TND":
            for what, x, rows in (("query", q, self.qlen), ("key", k, self.kvlen)):
                require(
                    sum(rows) <= x.size(0),
                    f"{name}: the lengths of {what}'s sequences add up to {sum(rows)}, but {what} has "
                    f"{x.size(0)} rows.",
                )
            q4, k4, v4 = (x.transpose(0, 1)[None] for x in (q, k, v))
        else:
            q4, k4, v4 = self.heads_first(q, k, v)
        require(
            q4.size(3) == k4.size(3),
            f"{name}: query's heads have size {q4.size(3)} and key's {k4.size(3)}; they must be the same.",
        )
        require(
            q4.size(0) == k4.size(0) and k4.shape[:3] == v4.shape[:3],
            f"{name}: query {list(q.shape)}, key {list(k.shape)} and value {list(v.shape)} must have "
            "one batch, and key and value as many heads and rows.",
        )
        require(
            k4.size(1) > 0 and self.heads % k4.size(1) == 0,
            f"{name}: the number of query heads ({self.heads}) must be a multiple of key and value's "
            f"({k4.size(1)}).",
        )
        require(
            self.sink is None or list(self.sink.shape) == [self.heads],
            f"{name}: sink has shape {self.sink if self.sink is None else list(self.sink.shape)}; "
            f"allowed: [{self.heads}].",
        )
        self._check_masks(q4.size(0), q4.size(2), k4.size(2))

    def _check_masks(self, batch, sq, skv) -> None:
        name, mask = self.name, self.mask
        count = len(self.qlen) if self.layout == "TND" else batch
        require(
            self.mode != 6 or mask is None or (self.prefix and len(self.prefix) == count),
            f"{name}: prefix is {self.prefix}; sparse_mode 6 needs one number for each of the {count} "
            "sequences.",
        )
        require(
            mask is None or mask.dtype in (torch.bool, torch.uint8, torch.int8),
            f"{name}: atten_mask is {mask if mask is None else mask.dtype}; allowed: bool, uint8.",
            "TYPE",
        )
        if mask is not None and self.mode not in (0, 1, 5):
            core.check_compressed(name, mask, self.mode)
        if self.layout == "TND":
            return
        if mask is not None and self.mode in (0, 1, 5):
            self._check_added("atten_mask", mask, batch, sq, skv)
        if self.pse is not None and self.pse.size(-2) in (1, sq):
            self._check_added("pse", self.pse, batch, self.pse.size(-2), skv)

    def _check_added(self, what, x, batch, sq, skv) -> None:
        require(
            tuple(x.shape[-2:]) == (sq, skv)
            and (
                x.dim() == 2
                or (x.dim() == 4 and x.size(0) in (1, batch) and x.size(1) in (1, self.heads))
            ),
            f"{self.name}: {what} has shape {list(x.shape)}; allowed: (1 or {batch}, 1 or "
            f"{self.heads}, {sq}, {skv}) and ({sq}, {skv}).",
        )

    def heads_first(self, q, k, v):
        kv = self.kv_heads
        return (
            core.to_bnsd(q, self.layout, self.heads),
            core.to_bnsd(k, self.layout, kv),
            core.to_bnsd(v, self.layout, kv),
        )

    def drop(self, sq, skv, index=None):
        """The mask; of sequence `index` in TND."""
        mask, mode = self.mask, self.mode
        if index is None:
            return core.dropped(mask, mode, sq, skv, self.pre, self.next, self.prefix)
        if mode == 7:
            mode = 4 if index == len(self.qlen) - 1 else 3
        elif mode == 8:
            mode = 4 if index == 0 else 2
        if mask is not None and mode in (0, 1):
            mask = mask[..., :sq, :skv]
        prefix = None if self.prefix is None else [self.prefix[index]]
        return core.dropped(mask, mode, sq, skv, self.pre, self.next, prefix)

    def pse_of(self, sq, skv, index=None):
        if self.pse is None:
            return None
        pse = self.pse
        if pse.size(-2) not in (1, sq) and index is None:
            unsupported(
                f"{self.name}: pse of shape {list(pse.shape)} (alibi's last rows) is not supported; "
                f"give (B or 1, N, {sq} or 1, {skv})."
            )
        if index is None:
            return pse
        pse = pse[index : index + 1] if pse.size(0) > 1 else pse
        return pse[..., : min(sq, pse.size(-2)), :skv]

    def dropout_shapes(self, q, k):
        if self.layout == "TND":
            return [(1, self.heads, a, b) for a, b in zip(self.qlen, self.kvlen)]
        q4, k4, _ = self.heads_first(q, k, k)
        return [(q4.size(0), self.heads, q4.size(2), k4.size(2))]
