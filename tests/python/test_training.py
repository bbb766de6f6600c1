# SPDX-License-Identifier: Apache-2.0
"""PyTorch's training features on npu tensors."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.modes


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.embed.weight
    model.npu()
    assert model.head.weight is model.embed.weight is before and before.is_npu
    assert optimizer.param_groups[0]["params"][0] is before
    assert model.cpu().head.weight is model.embed.weight


def test_param_data_assignment():
    p = nn.Parameter(torch.zeros(2))
    p.data = torch.ones(2, device="npu")
    assert p.is_npu and p.tolist() == [1, 1]
    p.data = torch.zeros(3, device="npu")
    assert p.shape == (3,)


def test_lazy_module():
    model = nn.LazyLinear(2).npu()
    assert model(torch.ones(1, 3, device="npu")).shape == (1, 2)
    assert model.weight.is_npu


def test_hooks():
    seen = []
    model = small_model().npu()
    model[0].register_forward_hook(lambda m, i, o: seen.append(("forward", o.device.type)))
    model[2].register_full_backward_hook(
        lambda m, gi, go: seen.append(("backward", go[0].device.type))
    )
    model[0].weight.register_hook(lambda g: g * 2)
    model[0].bias.register_post_accumulate_grad_hook(
        lambda p: seen.append(("grad", p.grad.device.type))
    )
    x = torch.ones(1, 4, device="npu")
    model(x).sum().backward()
    assert sorted(seen) == [("backward", "npu"), ("forward", "npu"), ("grad", "npu")]
    doubled = model[0].weight.grad
    twin = small_model()
    twin(x.cpu()).sum().backward()
    assert torch.allclose(doubled.cpu(), twin[0].weight.grad * 2)


def test_save_on_cpu():
    model, x = small_model().npu(), torch.ones(3, 4, device="npu")
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        model(x).sum().backward()
    twin = small_model()
    twin(x.cpu()).sum().backward()
    assert torch.allclose(model[0].weight.grad.cpu(), twin[0].weight.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_restores_random_state(reentrant):
    drop = nn.Dropout(0.5)
    x = torch.ones(1000, device="npu", requires_grad=True)
    torch.manual_seed(11)
    y = checkpoint(lambda v: drop(v) * v, x, use_reentrant=reentrant)
    y.sum().backward()
    # Recomputed with the same mask: the gradient is 2 * mask / keep = 2 * y.
    assert torch.equal(x.grad, 2 * y.detach())
    assert 0 < (y == 0).sum().item() < 1000


def test_fork_rng():
    torch.manual_seed(5)
    with torch.random.fork_rng(device_type="npu"):
        torch.rand(10, device="npu")
    a = torch.rand(3, device="npu")
    torch.manual_seed(5)
    assert torch.equal(a, torch.rand(3, device="npu"))


def test_seeds_before_the_device_is_used(run_python):
    done = run_python(
        "import torch, torch_npu\n"
        "torch.manual_seed(7); a = torch.rand(3, device='npu')\n"
        "torch.npu.manual_seed(7); b = torch.rand(3, device='npu')\n"
        "torch.npu.manual_seed_all(7); c = torch.rand(3, device='npu')\n"
        "assert torch.equal(a, b) and torch.equal(b, c) and torch.npu.initial_seed() == 7\n"
        "print(a.tolist())"
    )
    torch.manual_seed(7)
    assert str(torch.rand(3, device="npu").tolist()) == done.stdout.strip()


def test_random_state():
    state = torch.npu.get_rng_state()
    assert state.dtype == torch.uint8 and state.numel() == 16 and state.device.type == "cpu"
    a = torch.randn(5, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.equal(a, torch.randn(5, device="npu"))
    states = torch.npu.get_rng_state_all()
    assert len(states) == torch.npu.device_count() == len(torch.npu.default_generators)
    torch.npu.set_rng_state_all(states)
    assert torch.npu.default_generators[0].device == torch.device("npu:0")
    with pytest.raises(IndexError):
        torch.npu.default_generators[len(states)]


def test_autocast_and_scaler():
    model = small_model().npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("npu")
    x, y = torch.randn(64, 4, device="npu"), torch.zeros(64, 2, device="npu")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.amp.autocast("npu", dtype=torch.float16):
            out = model(x)
            loss = nn.functional.mse_loss(out.float(), y)
        assert out.dtype == torch.float16
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert scaler.get_scale() == 2.0**16


def test_scaler_skips_a_bad_step():
    p = nn.Parameter(torch.ones(2, device="npu"))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scaler = torch.npu.amp.GradScaler(init_scale=4.0)
    scaler.scale((p * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [1, 1] and scaler.get_scale() == 2.0
    constant = torch.npu.amp.GradScaler(init_scale=4.0, dynamic=False)
    p.grad = None
    constant.scale((p * float("inf")).sum()).backward()
    constant.step(optimizer)
    constant.update()
    assert p.tolist() == [1, 1] and constant.get_scale() == 4.0


def test_npu_amp_names():
    x = torch.ones(2, 2, device="npu")
    with torch.npu.amp.autocast():
        assert (x @ x).dtype == torch.float16
        assert torch.npu.is_autocast_enabled()
    with torch.npu.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with torch.npu.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32
    assert torch.bfloat16 in torch.npu.get_amp_supported_dtype()

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.npu.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, v):
            assert v.dtype == torch.float32 and not torch.npu.is_autocast_enabled()
            return v * 2

        @staticmethod
        @torch.npu.amp.custom_bwd
        def backward(ctx, g):
            return g * 2

    h = x.half().requires_grad_()
    with torch.npu.amp.autocast():
        Double.apply(h).sum().backward()
    assert h.grad.tolist() == [[2, 2], [2, 2]]
