# SPDX-License-Identifier: Apache-2.0
"""torchair.ge: what converters of users are written with."""

from torchair.ge import attr
from torchair.ge._custom_op import custom_op

__all__ = ["attr", "custom_op"]
