# SPDX-License-Identifier: Apache-2.0
"""Helpers under torch_npu.utils."""

from ._error_code import ErrCode, dist_error, graph_error, ops_error, prof_error, pta_error

__all__ = [
    "ErrCode", "dist_error", "get_cann_version", "graph_error", "ops_error", "prof_error",
    "pta_error",
]  # fmt: skip


def get_cann_version(module: str = "CANN") -> str:
    """The version of Ascend's toolkit: empty, as none is used."""
    return ""
