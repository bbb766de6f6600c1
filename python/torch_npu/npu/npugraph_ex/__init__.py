# SPDX-License-Identifier: Apache-2.0
"""torch.npu.npugraph_ex: the public part of the package npugraph_ex."""

from npugraph_ex import compile_fx, register_replacement

from . import inference, scope

__all__ = ["compile_fx", "inference", "register_replacement", "scope"]
