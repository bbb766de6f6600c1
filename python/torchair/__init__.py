# SPDX-License-Identifier: Apache-2.0
"""Graph mode under TorchAir's names: torch.compile(model, backend=torchair.get_npu_backend()).

docs/graph-mode.md says how to use it and how it works.
"""

import torch_npu  # noqa: F401  (registers the device)

from torchair._backend import get_compiler, get_npu_backend
from torchair._compiler import logger
from torchair._converters import Support, declare_supported, register_fx_node_ge_converter
from torchair.configs.compiler_config import CompilerConfig

__all__ = [
    "CompilerConfig", "Support", "declare_supported", "get_compiler", "get_npu_backend", "logger",
    "register_fx_node_ge_converter",
]  # fmt: skip
