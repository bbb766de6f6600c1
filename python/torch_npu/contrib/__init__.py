# SPDX-License-Identifier: Apache-2.0
"""Additions to torch_npu; `transfer_to_npu` runs CUDA programs on the npu."""

import importlib


def __getattr__(name: str):
    """Functions and modules are found here too; `import torch_npu.contrib` stays quick."""
    if name in ("function", "module"):
        return importlib.import_module(f"torch_npu.contrib.{name}")
    if not name.startswith("_"):
        for folder in ("function", "module"):
            found = getattr(importlib.import_module(f"torch_npu.contrib.{folder}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module 'torch_npu.contrib' has no attribute '{name}'")
