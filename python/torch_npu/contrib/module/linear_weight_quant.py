# SPDX-License-Identifier: Apache-2.0
"""Linear layers with quantised weights and floating point inputs."""

from torch import Tensor, nn

import torch_npu

from .linear_quant import constant

__all__ = ["LinearWeightQuant"]


class LinearWeightQuant(nn.Module):
    """x ((weight + antiquant_offset) * antiquant_scale) + bias; weight is (in, out)."""

    def __init__(
        self, in_features, out_features, bias: bool = True, device=None, dtype=None,
        antiquant_offset: bool = False, quant_scale: bool = False, quant_offset: bool = False,
        antiquant_group_size: int = 0, inner_precise: int = 0,
    ):  # fmt: skip
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = constant(in_features, out_features, device=device)
        self.antiquant_scale = constant(out_features, device=device)
        given = {
            "antiquant_offset": antiquant_offset,
            "quant_scale": quant_scale,
            "quant_offset": quant_offset,
            "bias": bias,
        }
        for name, wanted in given.items():
            setattr(self, name, constant(out_features, device=device) if wanted else None)
        self.antiquant_group_size, self.inner_precise = antiquant_group_size, inner_precise

    def forward(self, x: Tensor) -> Tensor:
        return torch_npu.npu_weight_quant_batchmatmul(
            x, self.weight, self.antiquant_scale, self.antiquant_offset, self.quant_scale,
            self.quant_offset, self.bias, self.antiquant_group_size, self.inner_precise,
        )  # fmt: skip
