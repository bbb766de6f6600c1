# SPDX-License-Identifier: Apache-2.0
"""torchair.llm_datadist: tensors over memory that another library allocated."""

import torch
from torch_npu import _C

__all__ = ["create_npu_tensors"]


def create_npu_tensors(
    shape: list[int], dtype: torch.dtype, addresses: list[int]
) -> list[torch.Tensor]:
    """One contiguous tensor over each address, on the current npu. The tensors do not own the
    memory: it must outlive them."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"create_npu_tensors: dtype: expected a torch.dtype, but got {type(dtype).__name__}"
        )
    for name, value, least in (("shape", shape, 0), ("addresses", addresses, 1)):
        if not isinstance(value, (list, tuple)) or any(
            isinstance(v, bool) or not isinstance(v, int) or v < least for v in value
        ):
            raise ValueError(
                f"create_npu_tensors: {name}: expected a list of int from {least} on, but got "
                f"{value!r}"
            )
    for address in addresses:
        if address % dtype.itemsize:
            raise ValueError(
                f"create_npu_tensors: address {address:#x} is not a multiple of {dtype.itemsize}, "
                f"the size of {dtype}"
            )
    return [_C._tensor_at_address(address, list(shape), dtype) for address in addresses]
