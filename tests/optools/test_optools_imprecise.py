# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own CPU kernels that are imprecise: warnings, and what is no further off is one too."""

import op_tools
import pytest
import torch
from faults import computed
from optools_helpers import kernel, quiet

BACKWARD = "native_layer_norm_backward"


def gradients(device, half=torch.bfloat16, weights=torch.bfloat16):
    """Weight gradients over 400 rows, which the cpu's kernel sums in the half type."""
    torch.manual_seed(0)
    layer = torch.nn.LayerNorm(16).to(weights).to(device)
    x = torch.randn(400, 16).to(half).to(device).requires_grad_()
    grad = torch.randn(400, 16).to(half).to(device)
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


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_float32_weights_of_half_inputs_as_well(device, half):
    """As autocast calls it: float32 gradients that were summed in the half type."""
    tool = gradients(device, half, torch.float32)
    assert tool.errors() == [] and verdict(tool) <= {"pass", "warn"}
    if device == "cpu":
        (found,) = tool.findings()
        assert found["reason"].endswith({torch.bfloat16: "BFloat16", torch.float16: "Half"}[half])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_the_cpu_does_sum_them_so(half):
    """Float64 by hand: once this fails, PyTorch has mended it, and the list's rows can go."""
    torch.manual_seed(0)
    x, grad = torch.randn(400, 16).to(half), torch.randn(400, 16).to(half)
    weight, bias = torch.ones(16), torch.zeros(16)
    _, mean, rstd = torch.native_layer_norm(x, [16], weight, bias, 1e-5)
    found = torch.ops.aten.native_layer_norm_backward(
        grad, x, [16], mean, rstd, weight, bias, [False, True, True]
    )
    hat = (x.double() - mean.double()) * rstd.double()
    for result, terms in ((found[1], grad.double() * hat), (found[2], grad.double())):
        assert result.dtype == torch.float32
        off = ((result.double() - terms.sum(0)).abs() / terms.abs().sum(0)).max().item()
        # What 400 terms lose in float32 is below 400 units of its last place.
        assert 400 * 2**-24 < off < 4 * torch.finfo(half).eps


def right(*args):
    """In float32: cuda's statistics have that dtype, and the cpu refuses the mixture."""
    wide = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
    gx, gw, gb = torch.ops.aten.native_layer_norm_backward(*wide)
    return gx.to(args[1].dtype), gw.to(args[5].dtype), gb.to(args[5].dtype)


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
    return gx, total[0].to(args[5].dtype), total[1].to(args[5].dtype)


@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("function, expected", [(twice, {"error"}), (as_bad, {"warn"})])
def test_a_device_is_measured_by_it(accelerator, function, expected, weights):
    with kernel(BACKWARD, computed(function), accelerator):
        found = verdict(gradients(accelerator, weights=weights))
    if accelerator == "cuda" and function is as_bad:
        expected = {"error"}  # there is no such call on the cpu to measure it by
    assert found == expected
