# SPDX-License-Identifier: Apache-2.0
"""Weights in the chip's own storage formats."""

import torch
import torch_npu
from torch_npu._format import Format

__all__ = ["npu_format_cast_via_cpu", "use_internal_format_weight"]


def use_internal_format_weight(model: torch.nn.Module) -> None:
    """Casts the weights of linear layers and of float16 convolutions to the formats that Ascend's
    kernels read fastest, and quantisation scales to the kernels' form. Results stay the same."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"use_internal_format_weight: expected a torch.nn.Module, but got {type(model).__name__}"
        )
    for name, module in model.named_modules():
        wanted = _format_of(module)
        if wanted is not None:
            weight = _on_npu(module.weight, f"{name}.weight".lstrip("."))
            module.weight.data = torch_npu.npu_format_cast(weight, int(wanted))
        _settle_scale(module)


def _format_of(module: torch.nn.Module) -> Format | None:
    from torch_npu.contrib.module import LinearQuant, LinearWeightQuant, QuantConv2d

    if isinstance(module, (torch.nn.Linear, LinearQuant, LinearWeightQuant)):
        return Format.FRACTAL_NZ
    dtype = {torch.nn.Conv2d: torch.float16, QuantConv2d: torch.int8}
    for kind, wanted in dtype.items():
        if isinstance(module, kind) and module.weight.dtype == wanted and module.groups == 1:
            return Format.FRACTAL_Z
    return None


def _on_npu(weight: torch.Tensor, name: str) -> torch.Tensor:
    if weight.device.type != "npu":
        raise RuntimeError(
            f"use_internal_format_weight: {name} is on {weight.device}, but only npu tensors have "
            "such formats. Call model.npu() first."
        )
    return weight.data


def _settle_scale(module: torch.nn.Module) -> None:
    """Does once the work that the quantised layers would do in every call."""
    from torch_npu.contrib.module import LinearQuant, QuantConv2d

    if isinstance(module, LinearQuant) and module.pertoken_scale is None:
        offset = module.offset
    elif isinstance(module, QuantConv2d):
        offset = None
    else:
        return
    if module.scale.dtype == torch.float32:
        module.scale.data = torch_npu.npu_trans_quant_param(module.scale.data, offset)


def npu_format_cast_via_cpu(
    self: torch.Tensor,
    acl_format: int,
    customize_dtype: int | None = None,
    input_dtype: int | None = None,
) -> torch.Tensor:
    """torch_npu.npu_format_cast. Ascend's variant computes the new layout on the host."""
    if customize_dtype is not None or input_dtype is not None:
        return torch_npu.npu_format_cast(
            self, acl_format, customize_dtype=customize_dtype, input_dtype=input_dtype
        )
    return torch_npu.npu_format_cast(self, acl_format)
