# SPDX-License-Identifier: Apache-2.0
"""Linear layers on integers: int8, or eight int4 in an int32."""

import torch
from torch import Tensor, nn

import torch_npu
from torch_npu.utils._error_code import ErrCode, ops_error

__all__ = ["LinearQuant"]


def constant(*size, dtype=torch.float32, device=None) -> nn.Parameter:
    """A parameter that no optimizer changes; its values are assigned to .data."""
    return nn.Parameter(torch.empty(size, dtype=dtype, device=device), False)


class LinearQuant(nn.Module):
    """(x weight^T + bias) * scale, with offset or a scale for each token; weight is (out, in)."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, offset: bool = False,
        pertoken_scale: bool = False, device=None, dtype=None, output_dtype=None,
    ):  # fmt: skip
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.output_dtype = output_dtype
        self.weight = constant(out_features, in_features, device=device)
        self.scale = constant(out_features, device=device)
        self.offset = constant(out_features, device=device) if offset else None
        self.pertoken_scale = constant(out_features, device=device) if pertoken_scale else None
        self.bias = constant(out_features, dtype=torch.int32, device=device) if bias else None

    def forward(self, linear_quant_input: Tensor) -> Tensor:
        x, weight = linear_quant_input, self.weight
        if x.dtype != weight.dtype or x.dtype not in (torch.int8, torch.int32):
            raise ValueError(
                "input and weight should be both torch.int32 or both torch.int8 datatype, "
                f"but now input is {x.dtype}, weight is {weight.dtype}." + ops_error(ErrCode.TYPE)
            )
        scale = self.scale
        if scale.dtype == torch.float32 and self.pertoken_scale is None:
            scale = torch_npu.npu_trans_quant_param(scale, self.offset)
        return torch_npu.npu_quant_matmul(
            x, weight.transpose(-2, -1), scale, offset=self.offset,
            pertoken_scale=self.pertoken_scale, bias=self.bias, output_dtype=self.output_dtype,
        )  # fmt: skip
