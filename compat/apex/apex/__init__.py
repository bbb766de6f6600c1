# SPDX-License-Identifier: Apache-2.0
"""apex as programs for Ascend's NPUs use it: amp, the fused optimizers, combined tensors."""

import importlib

__version__ = "0.1+opennpu"
_PARTS = ("amp", "contrib", "normalization", "optimizers", "parallel")
__all__ = list(_PARTS)


def __getattr__(name: str):
    if name in _PARTS:
        return importlib.import_module(f"apex.{name}")
    raise AttributeError(
        f"module 'apex' has no attribute '{name}': this apex comes with opennpu and has "
        + ", ".join(_PARTS)
    )
