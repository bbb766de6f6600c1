# SPDX-License-Identifier: Apache-2.0
"""Resampled images: a place between pixels has no more digits than float32, which is no fault."""

import op_tools
import pytest
import torch
from optools_helpers import quiet

SIZES = {"linear": (1000, 1777), "bilinear": (61, 107), "bicubic": (61, 107), "trilinear": (13, 29)}
AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def judged(device, dtype, mode, aligned, sizes):
    torch.manual_seed(0)
    x = torch.randn(1, 2, *[sizes[0]] * AXES[mode]).to(dtype).to(device).requires_grad_()
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        y = torch.nn.functional.interpolate(
            x, size=[sizes[1]] * AXES[mode], mode=mode, align_corners=aligned
        )
        y.backward(torch.randn(y.shape).to(dtype).to(device))
    assert sum("upsample" in row["op"] for row in tool.table()) == 2
    return tool


@pytest.mark.parametrize("aligned", [False, True], ids=["half pixels", "corners"])
@pytest.mark.parametrize("mode", SIZES)
def test_right_kernels_pass(device, mode, aligned):
    for sizes in (SIZES[mode], SIZES[mode][::-1]):
        assert judged(device, torch.float32, mode, aligned, sizes).findings() == []
        for dtype in (torch.bfloat16, torch.float16):
            tool = judged(device, dtype, mode, aligned, sizes)
            # The cpu's weights are as coarse as the image: warnings.
            assert (tool.errors() if device == "cpu" else tool.findings()) == []
