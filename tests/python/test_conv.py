# SPDX-License-Identifier: Apache-2.0
"""Convolutions, which PyTorch sends to the overrideable pair: bit-equal to CPU's."""

import pytest
import torch
import torch.nn.functional as F
from programs import program

pytestmark = pytest.mark.machines

CASES = {
    "1d": (F.conv1d, (2, 4, 9), (6, 4, 3), {}),
    "2d": (F.conv2d, (2, 4, 8, 9), (6, 4, 3, 3), {"padding": 1, "stride": 2}),
    "2d_groups": (F.conv2d, (2, 4, 8, 9), (6, 2, 3, 3), {"groups": 2, "dilation": 2}),
    "depthwise": (F.conv2d, (2, 4, 8, 9), (4, 1, 3, 3), {"groups": 4}),
    "3d": (F.conv3d, (1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {}),
    "transposed": (
        F.conv_transpose2d,
        (2, 4, 5, 5),
        (4, 3, 3, 3),
        {"stride": 2, "output_padding": 1},
    ),
    "unbatched": (F.conv2d, (4, 8, 9), (6, 4, 3, 3), {}),
}


def run(device, name, dtype, bias, format=torch.contiguous_format):
    function, input_shape, weight_shape, options = CASES[name]
    generator = torch.Generator().manual_seed(0)
    channels = (
        weight_shape[1] * options.get("groups", 1) if "transposed" in name else weight_shape[0]
    )
    parts = [
        torch.randn(s, generator=generator, dtype=dtype)
        for s in (input_shape, weight_shape, (channels,))
    ]
    if len(input_shape) == 4:
        parts[0] = parts[0].to(memory_format=format)
    x, w, b = (p.to(device).requires_grad_() for p in parts)
    y = function(x, w, b if bias else None, **options)
    grads = torch.autograd.grad(y.square().sum(), (x, w, b) if bias else (x, w))
    return [t.detach().cpu() for t in (y, *grads)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_forward_and_gradients_equal_cpu(name, dtype, bias):
    for got, expected in zip(
        run("npu", name, dtype, bias), run("cpu", name, dtype, bias), strict=True
    ):
        assert got.equal(expected)


BFLOAT16 = program(__file__, "_bfloat16")


def test_bfloat16_equals_cpu(run_python):
    # Without AMX: PyTorch's own CPU kernel dies on virtual machines that announce it wrongly.
    run_python(BFLOAT16, ONEDNN_MAX_CPU_ISA="AVX2", NPU_HALF_PRODUCTS="cpu")


def test_channels_last_is_kept():
    got = run("npu", "2d", torch.float32, True, torch.channels_last)
    expected = run("cpu", "2d", torch.float32, True, torch.channels_last)
    for a, b in zip(got, expected, strict=True):
        assert a.equal(b) and a.stride() == b.stride()


def test_only_the_asked_gradients_come_back():
    x = torch.randn(1, 2, 5, 5, device="npu")
    w = torch.randn(3, 2, 3, 3, device="npu", requires_grad=True)
    (grad,) = torch.autograd.grad(F.conv2d(x, w).sum(), (w,))
    assert grad.shape == w.shape


def test_second_derivatives():
    def run(device):
        g = torch.Generator().manual_seed(1)
        x = torch.randn(1, 2, 5, 5, generator=g, dtype=torch.float64).to(device).requires_grad_()
        w = torch.randn(3, 2, 3, 3, generator=g, dtype=torch.float64).to(device).requires_grad_()
        (first,) = torch.autograd.grad(F.conv2d(x, w).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), w)[0].cpu()

    torch.testing.assert_close(run("npu"), run("cpu"))


def test_errors_are_cpus():
    for device in ("cpu", "npu"):
        with pytest.raises(RuntimeError, match=r"expected input.* to have 4 channels"):
            F.conv2d(torch.ones(1, 3, 5, 5, device=device), torch.ones(2, 4, 3, 3, device=device))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.conv2d(torch.ones(1, 3, 5, 5, device="npu"), torch.ones(2, 3, 3, 3))
