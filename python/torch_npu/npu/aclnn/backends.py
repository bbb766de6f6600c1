# SPDX-License-Identifier: Apache-2.0
"""The module torch.npu.aclnn takes its functions from."""

import warnings

__all__ = ["version"]


def version() -> None:
    """None: Ascend's library says no version of its own either."""
    warnings.warn("torch.npu.aclnn.version: this device has no ACLNN version.", stacklevel=2)
