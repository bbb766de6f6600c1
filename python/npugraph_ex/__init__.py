# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex: graph mode with a flat list of options, as torch.compile(backend="npugraph_ex") has it.

It is torchair's engine in mode npugraph_ex; docs/graph-mode.md.
"""

import importlib

import torch_npu  # noqa: F401  (registers the device)
from torchair._compiler import logger

from npugraph_ex.configs.compiler_config import CompilerConfig
from npugraph_ex.npu_fx_compiler import compile_fx, get_compiler, get_npu_backend

__all__ = [
    "CompilerConfig", "compile_fx", "get_compiler", "get_npu_backend", "logger",
    "register_replacement",
]  # fmt: skip
_MODULES = ("core", "inference", "ops", "patterns", "scope", "tools")


def __getattr__(name: str):
    """Parts that a program may never use are imported when it does."""
    if name in _MODULES:
        return importlib.import_module(f"npugraph_ex.{name}")
    if name == "register_replacement":
        return importlib.import_module("npugraph_ex.patterns").register_replacement
    raise AttributeError(f"module 'npugraph_ex' has no attribute {name!r}")
