# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.nvtx's names for npu: the ranges of torch.npu.mstx."""

from .mstx import mark, mstx_range, range_end, range_pop, range_push, range_start

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def range(msg: str, *args, **kwargs):
    """A range as a context; the text is formatted with the other arguments."""
    return mstx_range(msg.format(*args, **kwargs))
