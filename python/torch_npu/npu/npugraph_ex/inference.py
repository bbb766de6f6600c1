# SPDX-License-Identifier: Apache-2.0
"""torch.npu.npugraph_ex.inference: compiled functions kept on disk."""

from collections.abc import Callable

import npugraph_ex
from npugraph_ex.inference import readable_cache

__all__ = ["cache_compile", "readable_cache"]


def cache_compile(
    func,
    *,
    dynamic: bool = True,
    cache_dir: str | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    **kwargs,
) -> Callable:
    """npugraph_ex.inference.cache_compile, with `options` instead of a configuration."""
    return npugraph_ex.inference.cache_compile(
        func, dynamic=dynamic, cache_dir=cache_dir, global_rank=global_rank, tp_rank=tp_rank,
        pp_rank=pp_rank, **kwargs,
    )  # fmt: skip
