# SPDX-License-Identifier: Apache-2.0
"""Lightning learns of npu when its connector is imported: it has no entry point for accelerators."""

from __future__ import annotations

import warnings
from types import ModuleType

from torch_npu._on_import import when_imported

# What chooses accelerator, strategy and precision: of the Trainer and of Fabric, under both names
# that each package has.
CONNECTORS = frozenset(
    {
        "lightning.fabric.connector",
        "lightning.pytorch.trainer.connectors.accelerator_connector",
        "lightning_fabric.connector",
        "pytorch_lightning.trainer.connectors.accelerator_connector",
    }
)


def install() -> None:
    when_imported(CONNECTORS, _connect)


def _connect(module: ModuleType) -> None:
    """A Lightning that is built differently is left as it is, with a line that says so."""
    from torch_npu._lightning import connect

    try:
        connect.connect(module)
    except (AttributeError, ImportError) as error:
        warnings.warn(
            f"torch_npu: accelerator 'npu' could not be added to {module.__name__}: {error}. "
            "This version of Lightning is not known; use 2.5 or 2.6.",
            stacklevel=2,
        )
