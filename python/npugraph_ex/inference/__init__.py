# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex.inference: compiled functions kept on disk."""

from collections.abc import Callable

from torchair.inference import _cache
from torchair.inference._cache import readable_cache

from npugraph_ex.configs.compiler_config import CompilerConfig
from npugraph_ex.npu_fx_compiler import _checked, _with

__all__ = ["cache_compile", "readable_cache"]


def cache_compile(
    func,
    *,
    config: CompilerConfig | None = None,
    dynamic: bool = True,
    cache_dir: str | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    **kwargs,
) -> Callable:
    """torchair.inference.cache_compile with npugraph_ex's options: `config`, or `options` as
    torch.compile has them. `custom_decompositions` says how operators are decomposed."""
    config = _with(_checked(config), kwargs.pop("options", None))
    return _cache.cached(
        func, config.tree(), dynamic, cache_dir, (global_rank, tp_rank, pp_rank), package="npugraph_ex",
        **kwargs,
    )  # fmt: skip
