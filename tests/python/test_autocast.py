# SPDX-License-Identifier: Apache-2.0
"""torch.autocast on npu: PyTorch's cast lists, half by default."""

import warnings

import pytest
import torch
import torch.nn.functional as F


def test_default_is_half():
    assert torch.get_autocast_dtype("npu") == torch.float16
    with torch.autocast("npu"):
        assert torch.is_autocast_enabled("npu") and not torch.is_autocast_enabled("cpu")
        assert (
            torch.ones(2, 2, device="npu") @ torch.ones(2, 2, device="npu")
        ).dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_lists(dtype):
    a = torch.rand(4, 4, device="npu")
    low = a.to(dtype)
    with torch.autocast("npu", dtype):
        for op in (
            lambda: a @ a,
            lambda: F.linear(a, a),
            lambda: F.conv1d(a[None], a[:, :, None]),
            lambda: torch.addmm(a, a, a),
            lambda: F.scaled_dot_product_attention(a[None], a[None], a[None]),
        ):
            assert op().dtype == dtype
        for op in (
            lambda: low.exp(),
            lambda: low.softmax(-1),
            lambda: low.sum(),
            lambda: low.norm(),
            lambda: F.layer_norm(low, (4,)),
            lambda: F.mse_loss(low, low),
            lambda: low.cumsum(0),
        ):
            assert op().dtype == torch.float32
        assert torch.addcmul(a, low, low).dtype == torch.float32
        assert (a + low).dtype == torch.float32
        assert a.relu().dtype == torch.float32 and low.relu().dtype == dtype
        # Operators on no list fall through, copies among them.
        assert torch.empty_like(a).copy_(low).dtype == torch.float32
        assert a.cpu().dtype == torch.float32


def test_binary_cross_entropy_is_refused():
    x = torch.rand(3, device="npu")
    with torch.autocast("npu"):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        assert F.binary_cross_entropy_with_logits(x, x).dtype == torch.float32
    F.binary_cross_entropy(x, x)


def test_cpu_autocast_does_not_reach_into_npu_operators():
    a = torch.rand(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert (a.npu() @ a.npu()).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16
    with torch.autocast("npu", torch.bfloat16):
        assert (a @ a).dtype == torch.float32


def test_training_under_autocast():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1)
    ).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 8, device="npu"), torch.randn(32, 1, device="npu")
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("npu", torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


def test_overflow_in_one_optimizer_skips_all():
    layers = [torch.nn.Linear(2, 2).npu() for _ in range(3)]
    optimizers = [
        torch.optim.SGD(layers[0].parameters(), lr=1.0),
        torch.optim.SGD(layers[1].parameters(), lr=1.0),
        torch.optim.Adam(layers[2].parameters(), lr=1.0, fused=True),
    ]
    scaler = torch.npu.amp.GradScaler(init_scale=8.0, growth_interval=1)
    for overflows in (False, True, False):
        before = [layer.weight.detach().clone() for layer in layers]
        for layer, optimizer in zip(layers, optimizers):
            optimizer.zero_grad()
            scaler.scale(layer(torch.ones(1, 2, device="npu")).sum()).backward()
        if overflows:
            layers[0].weight.grad.fill_(float("inf"))
        scale = scaler.get_scale()
        for optimizer in optimizers:
            scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.step(optimizers[1])
        scaler.update()
        moved = [not torch.equal(a, layer.weight) for a, layer in zip(before, layers)]
        assert moved == [not overflows] * 3
        assert scaler.get_scale() == scale * (0.5 if overflows else 2.0)


def test_fused_optimizer_overflow_skips_the_next():
    layers = [torch.nn.Linear(2, 2).npu() for _ in range(2)]
    first = torch.optim.Adam(layers[0].parameters(), fused=True)
    second = torch.optim.SGD(layers[1].parameters(), lr=1.0)
    scaler = torch.npu.amp.ShardedGradScaler(init_scale=4.0)
    for layer in layers:
        scaler.scale(layer(torch.ones(1, 2, device="npu")).sum()).backward()
    layers[0].bias.grad.fill_(float("nan"))
    before = layers[1].weight.detach().clone()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert torch.equal(layers[1].weight, before) and scaler.get_scale() == 2.0


def test_autocast_in_float32():
    x = torch.randn(4, 4, device="npu", dtype=torch.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.npu.amp.autocast(dtype=torch.float32):
            assert torch.npu.is_autocast_enabled()
            assert (x @ x).dtype == torch.float32
        with torch.autocast("npu", dtype=torch.float32):
            assert torch.nn.functional.linear(x, x).dtype == torch.float32
    assert (x @ x).dtype == torch.float16


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_that_widens(name):
    """What F.softmax(x, dtype=float32) calls on other accelerators, forward and backward; the CPU has neither."""
    forward = getattr(torch, f"_{name}")
    backward = getattr(torch, f"_{name}_backward_data")
    x = torch.randn(4, 5).half()
    wide = x.float().requires_grad_()
    want = getattr(torch, name)(wide, 1)
    got = forward(x.npu(), 1, True)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.cpu(), want.detach())
    out = torch.empty(0, device="npu")
    assert forward(x.npu(), 1, True, out=out) is out
    torch.testing.assert_close(out.cpu(), want.detach())
    seed = torch.randn(4, 5)
    want.backward(seed)
    grad = backward(seed.npu(), got, 1, torch.half)
    assert grad.dtype == torch.half
    torch.testing.assert_close(grad.cpu(), wide.grad.half())
    with pytest.raises(RuntimeError, match="half_to_float is for float16"):
        forward(wide.detach().npu(), 1, True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_half_in_float32(name):
    x = torch.randn(3, 5).half()
    function = getattr(torch, name)
    wanted = function(x.float(), 1)
    y = x.npu().requires_grad_()
    got = function(y, 1, dtype=torch.float32)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.cpu().detach(), wanted)
    (got * torch.arange(5.0, device="npu")).sum().backward()
    z = x.float().requires_grad_()
    (function(z, 1) * torch.arange(5.0)).sum().backward()
    assert y.grad.dtype == torch.float16
    torch.testing.assert_close(y.grad.cpu(), z.grad.half(), rtol=2e-3, atol=1e-4)
    with torch.inference_mode():
        inside = getattr(torch.nn.functional, name)(x.npu(), dim=0, dtype=torch.float32)
    torch.testing.assert_close(inside.cpu(), function(x.float(), 0))
    assert getattr(x.npu(), name)(-1).dtype == torch.float16
