# SPDX-License-Identifier: Apache-2.0
"""npugraph_ex.register_replacement, where npugraph_ex keeps it."""

from torchair._patterns import REGISTERED, registrar

__all__ = ["register_replacement"]

register_replacement = registrar(REGISTERED["npugraph_ex"])
