# SPDX-License-Identifier: Apache-2.0
"""TorchAir's logger, under the path that its documents name."""

from torchair._compiler import EVENT as EVENT_LEVEL
from torchair._compiler import logger

__all__ = ["EVENT_LEVEL", "logger"]
