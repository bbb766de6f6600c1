# SPDX-License-Identifier: Apache-2.0
"""What converters use to give their operands one dtype."""

import torch

from torchair.ge._ge_graph import Const, torch_type_of

__all__ = ["dtype_promote"]


def dtype_promote(*tensors, target_dtype):
    """The tensors in `target_dtype`, a torch.dtype or a ge.DataType. Numbers become constants."""
    dtype = torch_type_of(target_dtype)
    made = [
        value.to(dtype) if isinstance(value, torch.Tensor) else Const(value, dtype)
        for value in tensors
    ]
    return made if len(made) > 1 else made[0]
