# SPDX-License-Identifier: Apache-2.0
"""The converter registry, under the path where TorchAir keeps it."""

from torchair._converters import declare_supported, register_fx_node_ge_converter

__all__ = ["declare_supported", "register_fx_node_ge_converter"]
