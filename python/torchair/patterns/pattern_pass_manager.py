# SPDX-License-Identifier: Apache-2.0
"""torchair.register_replacement, where TorchAir keeps it."""

from torchair._patterns import REGISTERED, registrar

__all__ = ["register_replacement"]

register_replacement = registrar(REGISTERED["torchair"])
