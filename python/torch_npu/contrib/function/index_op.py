# SPDX-License-Identifier: Apache-2.0
"""Values where a condition holds."""

from torch import Tensor

__all__ = ["npu_fast_condition_index_put"]


def npu_fast_condition_index_put(x: Tensor, condition: Tensor, value) -> Tensor:
    """A copy of `x` with `value` where `condition` is true."""
    if condition.dtype.is_floating_point or condition.shape != x.shape:
        raise ValueError(
            f"npu_fast_condition_index_put: expected a bool tensor of size {tuple(x.shape)}, but "
            f"got {condition.dtype} of {tuple(condition.shape)}"
        )
    return x.masked_fill(condition.bool(), value)
