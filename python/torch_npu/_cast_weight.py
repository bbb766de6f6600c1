# SPDX-License-Identifier: Apache-2.0
"""Module.cast_weight: weights in the private formats that chips before the 910B prefer.

Nothing happens unless the user switches it on: torch.npu.set_mm_bmm_format_nd(False)
for matrices, torch.npu.set_compile_mode(jit_compile=True) for convolutions and
batch norms, and allow_internal_format for either.
"""

import functools

import torch
from torch import nn

from torch_npu._format import Format


def install() -> None:
    nn.Module.cast_weight = cast_weight
    nn.Module.npu = _casting(nn.Module.npu)
    nn.Module.to = _casting(nn.Module.to)


def cast_weight(self: nn.Module, device) -> nn.Module:
    """Casts the npu tensors of this module and its children."""
    if torch.device(device).type == "npu":
        for module in self.modules():
            for parameter, format in _formats(module):
                if parameter is not None and parameter.device.type == "npu":
                    parameter.data = torch.ops.npu.npu_format_cast(parameter.data, format)
    return self


def _formats(module: nn.Module):
    """Pairs of a tensor of the module and the format it should have."""
    from torch_npu.npu import get_mm_bmm_format_nd, is_jit_compile_false

    if not get_mm_bmm_format_nd():
        if isinstance(module, nn.Linear):
            yield module.weight, Format.FRACTAL_NZ
        elif isinstance(module, nn.MultiheadAttention):
            for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
                yield getattr(module, name, None), Format.FRACTAL_NZ
    if is_jit_compile_false():
        return
    if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
        for name in ("weight", "bias", "running_mean", "running_var"):
            yield getattr(module, name), Format.NC1HWC0
    elif isinstance(module, nn.Conv2d) and module.groups == 1:
        yield module.weight, Format.FRACTAL_Z
    elif isinstance(module, nn.Conv3d) and module.groups == 1:
        yield module.weight, Format.FRACTAL_Z_3D


def _casting(move):
    """`move` (Module.to or Module.npu), and then cast_weight where it is switched on."""

    @functools.wraps(move)
    def moved(self, *args, **kwargs):
        from torch_npu.npu import get_mm_bmm_format_nd, is_jit_compile_false

        module = move(self, *args, **kwargs)
        if not get_mm_bmm_format_nd() or not is_jit_compile_false():
            cast_weight(module, "npu")
        return module

    return moved
