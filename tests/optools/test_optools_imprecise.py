# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own CPU kernels that are imprecise: warnings, and what is no further off is one too."""

import op_tools
import pytest
import torch
from faults import computed
from optools_helpers import kernel, quiet

BACKWARD = "native_layer_norm_backward"


def gradients(device):
    """Weight gradients over 400 rows, which the cpu's kernel sums in bfloat16."""
    torch.manual_seed(0)
    layer = torch.nn.LayerNorm(16).bfloat16().to(device)
    x = torch.randn(400, 16).bfloat16().to(device).requires_grad_()
    grad = torch.randn(400, 16).bfloat16().to(device)
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        layer(x).backward(grad)
    return tool


def verdict(tool):
    (row,) = [row for row in tool.table() if row["op"] == "aten::" + BACKWARD]
    return {name for name in ("pass", "warn", "error") if row[name]}


def test_the_cpus_own_is_a_warning(device):
    tool = gradients(device)
    assert tool.errors() == [] and verdict(tool) <= {"pass", "warn"}
    if device == "cpu":
        (found,) = tool.findings()
        assert "PyTorch's own CPU kernel" in found["reason"]


def right(*args):
    """In float32: cuda's statistics have that dtype, and the cpu refuses the mixture."""
    wide = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
    return [g.to(args[1].dtype) for g in torch.ops.aten.native_layer_norm_backward(*wide)]


def twice(*args):
    gx, gw, gb = right(*args)
    return gx, gw * 2, gb


def as_bad(*args):
    """Sums in bfloat16 as well, the other way round."""
    grad, x, _, mean, rstd, *_ = args
    hat = (x.float() - mean.float()) * rstd.float()
    gx = right(*args)[0]
    total = torch.zeros(2, x.shape[1], dtype=x.dtype)
    for rows in range(len(x) - 40, -1, -40):
        part = slice(rows, rows + 40)
        total[0] += (grad[part].float() * hat[part]).sum(0).to(x.dtype)
        total[1] += grad[part].sum(0)
    return gx, total[0], total[1]


@pytest.mark.parametrize("function, expected", [(twice, {"error"}), (as_bad, {"warn"})])
def test_a_device_is_measured_by_it(accelerator, function, expected):
    with kernel(BACKWARD, computed(function), accelerator):
        found = verdict(gradients(accelerator))
    if accelerator == "cuda" and function is as_bad:
        expected = {"error"}  # there is no such call on the cpu to measure it by
    assert found == expected
