# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex.scope: how Ascend is to run a part of a graph."""

from torchair.scope import limit_core_num

__all__ = ["limit_core_num"]
