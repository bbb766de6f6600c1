# SPDX-License-Identifier: Apache-2.0
"""The middle of an attention layer."""

import torch
from torch import Tensor

__all__ = ["fuse_add_softmax_dropout"]


def fuse_add_softmax_dropout(
    training: bool,
    dropout,
    attn_mask: Tensor,
    attn_scores: Tensor,
    attn_head_size: int,
    p: float = 0.5,
    dim: int = -1,
) -> Tensor:
    """dropout(softmax(attn_mask + attn_scores / sqrt(attn_head_size))).

    With `training` a dropout of probability `p` is applied, else the module `dropout`.
    """
    scores = torch.add(attn_mask, attn_scores, alpha=attn_head_size**-0.5)
    probabilities = torch.softmax(scores, dim)
    if training:
        return torch.nn.functional.dropout(probabilities, p)
    return dropout(probabilities)
