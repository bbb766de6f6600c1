# SPDX-License-Identifier: Apache-2.0
"""torch.npu.npugraph_ex.scope: how Ascend is to run a part of a graph."""

from npugraph_ex.scope import limit_core_num

__all__ = ["limit_core_num"]
