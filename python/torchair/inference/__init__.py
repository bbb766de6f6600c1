# SPDX-License-Identifier: Apache-2.0
"""torchair.inference: compiled functions kept on disk, and sizes known beforehand."""

from torchair.inference._cache import cache_compile, readable_cache
from torchair.inference._gears import set_dim_gears

__all__ = ["cache_compile", "readable_cache", "set_dim_gears"]
