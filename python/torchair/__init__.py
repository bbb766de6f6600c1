# SPDX-License-Identifier: Apache-2.0
"""Graph mode under TorchAir's names: torch.compile(model, backend=torchair.get_npu_backend()).

docs/graph-mode.md says how to use it and how it works.
"""

import importlib

import torch_npu  # noqa: F401  (registers the device)

from torchair._backend import get_compiler, get_npu_backend
from torchair._compiler import logger
from torchair._converters import Support, declare_supported, register_fx_node_ge_converter
from torchair._export import dynamo_export
from torchair.configs.compiler_config import CompilerConfig

__all__ = [
    "CompilerConfig", "Support", "declare_supported", "dynamo_export", "get_compiler",
    "get_npu_backend", "logger", "patch_for_hcom", "register_fx_node_ge_converter",
]  # fmt: skip
_MODULES = ("ge", "inference", "ops", "scope")


def __getattr__(name: str):
    """Parts that a program may never use are imported when it does."""
    if name in _MODULES:
        return importlib.import_module(f"torchair.{name}")
    raise AttributeError(f"module 'torchair' has no attribute {name!r}")


def patch_for_hcom() -> None:
    """Collectives of torch.distributed in a graph: PyTorch traces them itself, nothing to patch."""
