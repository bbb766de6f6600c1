# SPDX-License-Identifier: Apache-2.0
"""dynamo_export, under the path where TorchAir keeps it."""

from torchair._export import dynamo_export

__all__ = ["dynamo_export"]
