# SPDX-License-Identifier: Apache-2.0
"""torch.autocast on npu: PyTorch's cast lists, half by default."""

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
