# SPDX-License-Identifier: Apache-2.0
"""torchair.ge: what converters of users are written with."""

from torchair.ge import attr
from torchair.ge._custom_op import custom_op
from torchair.ge._ge_graph import Cast, Clone, Const, DataType, Format, Tensor, TensorSpec

__all__ = [
    "Cast", "Clone", "Const", "DataType", "Format", "Tensor", "TensorSpec", "attr", "custom_op",
]  # fmt: skip
