# SPDX-License-Identifier: Apache-2.0
"""The logger, under the path that npugraph_ex's documents name."""

from torchair._compiler import logger

__all__ = ["logger"]
