# SPDX-License-Identifier: Apache-2.0
"""The backend and the bare compiler, under the path where TorchAir keeps them."""

from torchair._backend import get_compiler, get_npu_backend

__all__ = ["get_compiler", "get_npu_backend"]
