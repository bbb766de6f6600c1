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
    "get_npu_backend", "logger", "npu_format_cast_via_cpu", "patch_for_hcom",
    "register_fx_node_ge_converter", "register_replacement", "use_internal_format_weight",
]  # fmt: skip
# Imported when a program asks for them: what they load is not small, and most programs do not.
_MODULES = ("experimental", "ge", "inference", "llm_datadist", "ops", "patterns", "scope", "tools")
_LATER = {
    "npu_format_cast_via_cpu": "torchair.experimental.inference",
    "register_replacement": "torchair.patterns.pattern_pass_manager",
    "use_internal_format_weight": "torchair.experimental.inference",
}


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"torchair.{name}")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'torchair' has no attribute {name!r}")


def patch_for_hcom() -> None:
    """Collectives of torch.distributed in a graph: PyTorch traces them itself, nothing to patch."""
    from torchair._accepted import note

    note("torchair.patch_for_hcom")
