# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels of operators that PyTorch's own CPU kernels compute imprecisely: no excuse for them.

The CPU's error in the same call is the measure, not the worst it was ever seen to come to."""

import op_tools
import pytest
import torch
from faults import computed
from optools_helpers import kernel, quiet
from torch.nn import functional as F

aten = torch.ops.aten


def only_narrow(right, spoil):
    """The CPU's kernel, spoiled in half precision: float64 references stay right."""

    def function(*args, **kwargs):
        result = right(*args, **kwargs)
        narrow = any(isinstance(a, torch.Tensor) and a.element_size() == 2 for a in args)
        return spoil(result, *args, **kwargs) if narrow else result

    return function


def lost_channel(result, x, weight, bias, *more):
    return aten.convolution(x[:, 1:], weight[:, 1:], bias, *more)


def scaled(factor):
    def spoil(result, *args, **kwargs):
        if isinstance(result, torch.Tensor):
            return result * factor
        return [r if r is None else r * (factor if i == 0 else 1) for i, r in enumerate(result)]

    return spoil


def lost_row(result, grad, indices, *more):
    """The gradient of the last row read is not added."""
    last = indices.flatten()[-1]
    out = result.clone()
    out[last] -= grad.reshape(-1, grad.shape[-1])[-1]
    return out


def weight_gradient_off(result, *args):
    gx, gw, gb = result
    return gx, gw * 1.25, gb


def conv(x):
    return F.conv2d(x, torch.randn(6, 8, 3, 3).to(x), None)


def embed(x):
    table = torch.zeros(50, 16).to(x).requires_grad_()
    rows = (torch.arange(60) % 45).to(x.device)
    F.embedding(rows, table).backward(torch.randn(60, 16).to(x))


def norm(x):
    layer = torch.nn.LayerNorm(16).to(x)
    rows = x.flatten()[:320].view(20, 16)
    layer(rows.clone().requires_grad_()).backward(torch.randn(20, 16).to(x))


def sample(x):
    grid = (torch.rand(2, 5, 5, 2) * 1.6 - 0.8).to(x)
    F.grid_sample(x, grid, align_corners=False)


def resize(x):
    F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)


def pool(x):
    F.adaptive_avg_pool2d(x.clone().requires_grad_(), 3).backward(torch.randn(2, 8, 3, 3).to(x))


FAULTS = {
    "a channel lost in a convolution": ("convolution", conv, lost_channel, torch.float16),
    "a fifth off in grid_sample": ("grid_sampler_2d", sample, scaled(1.2), torch.float16),
    "a fifth off in grid_sample, bfloat16": (
        "grid_sampler_2d", sample, scaled(1.2), torch.bfloat16,
    ),
    "an eighth off in bicubic": ("upsample_bicubic2d", resize, scaled(1.125), torch.float16),
    "a row lost in embedding's backward": (
        "embedding_dense_backward", embed, lost_row, torch.float16,
    ),
    "a quarter off in layer_norm's weight gradient": (
        "native_layer_norm_backward", norm, weight_gradient_off, torch.bfloat16,
    ),
    "a tenth off in adaptive pooling": (
        "_adaptive_avg_pool2d_backward", pool, scaled(1.1), torch.bfloat16,
    ),
}  # fmt: skip


def layer_norm_gradient(grad, x, shape, mean, rstd, *more):
    """Accelerators save statistics in float32, which the CPU's kernel refuses beside halves."""
    return aten.native_layer_norm_backward(grad, x, shape, mean.to(x), rstd.to(x), *more)


RIGHT = {"native_layer_norm_backward": layer_norm_gradient}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_kernel_is_an_error(accelerator, name):
    op, run, spoil, dtype = FAULTS[name]
    torch.manual_seed(0)
    x = torch.randn(2, 8, 9, 9).to(dtype).to(accelerator)
    right = RIGHT.get(op) or getattr(aten, op)
    tools = []
    for function in (None, computed(only_narrow(right, spoil))):
        tool = quiet(op_tools.OpAutoCompare())
        if function is None:
            with tool:
                run(x)
        else:
            with kernel(op, function, accelerator), tool:
                run(x)
        tools.append(tool)
    clean, faulty = tools
    assert clean.errors() == []
    assert [e["op"] for e in faulty.errors()] == ["aten::" + op], [
        (f["op"], f["verdict"], f["reason"]) for f in faulty.findings()
    ]
