# SPDX-License-Identifier: Apache-2.0
"""Helpers under torch_npu.utils."""

import importlib

from ._error_code import ErrCode, dist_error, graph_error, ops_error, prof_error, pta_error

# Found when first asked for: torch_npu itself is imported with this package.
_LAZY = {
    "FlopsCounter": "flops_count",
    "define_operators": "_define",
    "get_part_combined_tensor": "combine_tensors",
    "is_combined_tensor_valid": "combine_tensors",
    "npu_combine_tensors": "combine_tensors",
    "print_error_log": "utils",
    "print_info_log": "utils",
    "print_warn_log": "utils",
    "reset_thread_affinity": "affinity",
    "save_async": "serialization",
    "set_thread_affinity": "affinity",
}

__all__ = [
    "ErrCode", "dist_error", "get_cann_version", "graph_error", "ops_error", "prof_error",
    "pta_error", *_LAZY,
]  # fmt: skip


def get_cann_version(module: str = "CANN") -> str:
    """The version of Ascend's toolkit: empty, as none is used."""
    return ""


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(f"torch_npu.utils.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'torch_npu.utils' has no attribute '{name}'")
