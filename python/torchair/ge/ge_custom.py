# SPDX-License-Identifier: Apache-2.0
"""custom_op, under the path where TorchAir keeps it."""

from torchair.ge._custom_op import custom_op

__all__ = ["custom_op"]
