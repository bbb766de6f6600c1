# SPDX-License-Identifier: Apache-2.0
"""OpFallback and OpDtypeCast: other kernels, same results, nothing lost."""

import re

import op_tools
import pytest
import torch
from optools_helpers import acted
from torch import nn


def test_fallback_in_place(accelerator, capsys):
    x = torch.zeros(3, device=accelerator)
    tool = op_tools.OpFallback()
    with tool:
        y = x.add_(1)
        x[0] = 5
    assert y is x
    assert x.cpu().tolist() == [5, 1, 1]
    assert "aten::add_.Tensor" in acted(tool)
    # How many depends on the device: x[0] = 5 is a copy on one and a fill on another.
    assert re.search(r"operators?, \d calls? ran on the cpu", capsys.readouterr().out)


def test_fallback_out_argument(accelerator):
    x = torch.arange(4.0, device=accelerator)
    out = torch.empty(0, device=accelerator)
    with op_tools.OpFallback():
        result = torch.add(x, x, out=out)
        torch.exp(x, out=x)
    assert result is out
    assert out.cpu().tolist() == [0, 2, 4, 6]
    assert torch.equal(x.cpu(), torch.arange(4.0).exp())


def test_fallback_views_share_memory(accelerator):
    x = torch.arange(6.0, device=accelerator).view(2, 3)
    with op_tools.OpFallback():
        flat = x.view(-1)
        flat[0] = 9
    assert x.cpu()[0, 0] == 9


def test_fallback_named_results_and_foreach(accelerator):
    x = torch.tensor([[1.0, 3.0], [4.0, 2.0]], device=accelerator)
    with op_tools.OpFallback():
        largest = x.max(dim=1)
        added = torch._foreach_add([x, x], 1)
        torch._foreach_mul_([x], 2)
    assert largest.values.cpu().tolist() == [3, 4]
    assert largest.indices.cpu().tolist() == [1, 0]
    assert added[1].device.type == accelerator
    assert added[1].cpu().tolist() == [[2, 4], [5, 3]]
    assert x.cpu().tolist() == [[2, 6], [8, 4]]


def test_fallback_half_keeps_dtype_and_gradient(accelerator):
    x = torch.randn(3, 4, device=accelerator, dtype=torch.float16, requires_grad=True)
    tool = op_tools.OpFallback()
    with tool:
        y = (x @ x.t()).softmax(-1)
        y.sum().backward()
    assert y.dtype == torch.float16 and y.device.type == accelerator
    assert x.grad.dtype == torch.float16
    assert "aten::mm" in acted(tool)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_fallback_of_a_training_step_equals_a_cpu_run(accelerator, make):
    def train(device, tool):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
        model.to(device)
        optimizer = make(model.parameters(), lr=0.1)
        x = torch.linspace(-1, 1, 24).view(4, 6).to(device)
        with tool:
            for _ in range(3):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    import contextlib

    plain = train("cpu", contextlib.nullcontext())
    fallen = train(accelerator, op_tools.OpFallback())
    for a, b in zip(plain, fallen, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_fallback_list(accelerator, monkeypatch):
    monkeypatch.setenv("OP_FALLBACK_LIST", "torch.nn.functional.linear")
    x = torch.randn(2, 3, device=accelerator)
    w = torch.randn(4, 3, device=accelerator, requires_grad=True)
    tool = op_tools.OpFallback()
    with tool:
        (nn.functional.linear(x, w) * 2).sum().backward()
    assert acted(tool) and all("mm" in op for op in acted(tool))
    torch.testing.assert_close(w.grad.cpu(), (2 * x).sum(0).expand(4, 3).cpu())


def test_of_two_fallbacks_one_runs_the_call_and_the_other_says_so(accelerator):
    first, last = op_tools.OpFallback(), op_tools.OpFallback()
    x = torch.ones(3, device=accelerator)
    with first, last:
        x.sin()
    assert last.counts() == [("aten::sin", "", 1)]
    assert first.counts() == [("aten::sin", "another tool runs it", 1)]


def test_fallback_of_what_the_cpu_lacks_runs_on_the_device(accelerator):
    """Attention on a PrivateUse1 device is an operator the CPU only has a placeholder for."""
    q = torch.randn(1, 2, 8, 16, device=accelerator)
    plain = nn.functional.scaled_dot_product_attention(q, q, q)
    tool = op_tools.OpFallback()
    with tool:
        fallen = nn.functional.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(plain.cpu(), fallen.cpu())


def test_observe_sees_what_falls_back(accelerator):
    x = torch.ones(3, device=accelerator)
    observe, fallback = op_tools.OpObserve(), op_tools.OpFallback()
    with observe, fallback:
        x.sin()
    assert [r["op"] for r in observe.records()] == ["aten::sin"]
    assert acted(fallback) == {"aten::sin"}


def test_cast_computes_wider_and_gives_the_dtype_back(accelerator):
    x = torch.full((4,), 300.0, device=accelerator, dtype=torch.float16)
    tool = op_tools.OpDtypeCast()
    with tool:
        y = x * 2
        total = torch.sum(x)
    assert y.dtype == total.dtype == torch.float16
    assert total.item() == 1200
    assert "aten::mul.Tensor" in acted(tool)


def test_cast_in_place_and_mixed(accelerator):
    x = torch.ones(3, device=accelerator, dtype=torch.float16)
    f = torch.ones(3, device=accelerator)
    with op_tools.OpDtypeCast():
        y = x.add_(1)
        mixed = x + f
    assert y is x and x.dtype == torch.float16
    assert x.cpu().tolist() == [2, 2, 2]
    assert mixed.dtype == torch.float32


def test_cast_gradient_keeps_the_leafs_dtype(accelerator):
    x = torch.randn(3, 3, device=accelerator, dtype=torch.bfloat16, requires_grad=True)
    with op_tools.OpDtypeCast():
        (x @ x).relu().sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_cast_map_is_checked(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float16=>torch.float32")
    with pytest.raises(ValueError, match="OP_DTYPE_CAST_DICT"):
        op_tools.OpDtypeCast().start()
