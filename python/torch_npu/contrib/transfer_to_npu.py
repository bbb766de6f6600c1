# SPDX-License-Identifier: Apache-2.0
"""`import torch_npu.contrib.transfer_to_npu`: CUDA programs run on the npu, unchanged.

From the import on, "cuda" means "npu": in device arguments, in torch.cuda's
functions, in Tensor.cuda() and Module.cuda(), in autocast, and in checkpoints
that were saved from a GPU. Import it before the program's own modules, or set
TORCH_TRANSFER_TO_NPU=1. Importing is silent and happens once.
"""

from torch_npu.contrib._transfer import patch_all
from torch_npu.contrib._transfer._helpers import (  # noqa: F401
    _del_nccl_device_backend_map,
    _device_wrapper,
    _init,
    _replace_cuda_to_npu_in_kwargs,
    _replace_cuda_to_npu_in_list,
    _wrapper_cuda,
    device_kwargs_list,
)

patch_all()
