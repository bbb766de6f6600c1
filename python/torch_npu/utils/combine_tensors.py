# SPDX-License-Identifier: Apache-2.0
"""Many tensors in one: fused optimizers update the one and all of them change."""

import torch
from torch import Tensor

import torch_npu
from torch_npu.utils._error_code import ErrCode, pta_error

__all__ = [
    "get_part_combined_tensor",
    "is_combined_tensor_valid",
    "npu_change_data_ptr",
    "npu_combine_tensors",
]


def _check_tensors(tensors) -> None:
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or tensor.device.type != "npu":
            raise RuntimeError(
                f"npu_combine_tensors: expected npu tensors, but got {_name(tensor)}"
                + pta_error(ErrCode.PARAM)
            )
    kinds = {(tensor.dtype, tensor.device) for tensor in tensors}
    if len(kinds) > 1:
        raise RuntimeError(
            f"npu_combine_tensors: expected one dtype and device, but got {sorted(map(str, kinds))}"
            + pta_error(ErrCode.TYPE)
        )


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill their memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _name(value) -> str:
    return f"a tensor on {value.device}" if isinstance(value, Tensor) else type(value).__name__


def npu_combine_tensors(list_of_tensor, require_copy_value: bool = True) -> Tensor | None:
    """Moves the tensors into one flat tensor, one behind the other, and gives it back.

    They keep sizes and formats and become views of it. None for an empty list;
    `require_copy_value=False` leaves the values out, for tensors that are about to be written.
    """
    tensors = list(list_of_tensor)
    if not tensors:
        return None
    _check_tensors(tensors)
    sizes = [torch_npu.get_storage_size(tensor) for tensor in tensors]
    combined = torch.zeros(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    start = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        values = tensor.detach().clone() if require_copy_value else None
        npu_change_data_ptr(tensor, combined, start)
        if values is not None:
            tensor.data.copy_(values)
        start += size
    return combined


def npu_change_data_ptr(dst: Tensor, src: Tensor, index: int) -> int:
    """Moves `dst` into the memory of `src`, from element `index` on, which it keeps alive; its
    sizes and format stay. 0: done."""
    _check_tensors([dst, src])
    if dst.storage_offset() or not _is_dense(dst):
        raise RuntimeError(
            "npu_change_data_ptr: expected a dense tensor with a storage of its own, but got a view"
            + pta_error(ErrCode.PARAM)
        )
    end = index + torch_npu.get_storage_size(dst)
    if index < 0 or end > src.numel() or not src.is_contiguous():
        raise RuntimeError(
            f"npu_change_data_ptr: elements {index} to {end} are not in a contiguous tensor of "
            f"{src.numel()}" + pta_error(ErrCode.PARAM)
        )
    torch_npu._C._change_data_ptr(dst, src, index)
    return 0


def get_part_combined_tensor(combined_tensor: Tensor | None, index: int, size: int):
    """`size` elements from `index` on, as a view; None where there is nothing."""
    if combined_tensor is None or not size:
        return None
    if index < 0 or size < 0 or index + size > combined_tensor.numel():
        raise RuntimeError(
            f"get_part_combined_tensor: elements {index} to {index + size} are not in a combined "
            f"tensor of {combined_tensor.numel()}" + pta_error(ErrCode.VALUE)
        )
    return combined_tensor.detach()[index : index + size]


def is_combined_tensor_valid(combined_tensor: Tensor | None, list_of_tensor) -> bool:
    """Whether these tensors still lie in `combined_tensor`, one behind the other."""
    if combined_tensor is None:
        return not list_of_tensor
    address = combined_tensor.data_ptr()
    for tensor in list_of_tensor:
        if tensor is None or tensor.data_ptr() != address:
            return False
        address += torch_npu.get_storage_size(tensor) * tensor.element_size()
    return address == combined_tensor.data_ptr() + combined_tensor.numel() * (
        combined_tensor.element_size()
    )
