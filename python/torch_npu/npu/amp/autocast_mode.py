# SPDX-License-Identifier: Apache-2.0
"""The module programs import autocast from."""

from . import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
