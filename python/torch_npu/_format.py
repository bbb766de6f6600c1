# SPDX-License-Identifier: Apache-2.0
"""Storage formats, numbered as Ascend's ACL numbers them."""

from enum import IntEnum

import torch

__all__ = ["Format", "get_npu_format"]


class Format(IntEnum):
    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    NC = 35
    NCL = 47
    FRACTAL_NZ_C0_16 = 50
    FRACTAL_NZ_C0_32 = 51
    FRACTAL_NZ_C0_2 = 52
    FRACTAL_NZ_C0_4 = 53
    FRACTAL_NZ_C0_8 = 54


def get_npu_format(input: torch.Tensor) -> Format:
    """The format of an npu tensor's storage."""
    return Format(torch.ops.npu.get_npu_format(input))


@torch.library.register_fake("npu::empty_with_format")
def _empty_with_format(
    size, *, dtype=None, layout=None, device=None, pin_memory=None, acl_format=2,
    base_addr_aligned_kb=None,
):  # fmt: skip
    return torch.empty(size, dtype=dtype, device=device or "npu")
