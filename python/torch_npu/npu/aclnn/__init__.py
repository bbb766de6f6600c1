# SPDX-License-Identifier: Apache-2.0
"""torch.npu.aclnn: Ascend's operator library, which is not there."""

from .backends import version

__all__ = ["version"]
