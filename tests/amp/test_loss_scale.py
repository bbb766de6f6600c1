# SPDX-License-Identifier: Apache-2.0
"""Loss scaling: the scale lives on the device, and a step asks it for nothing."""

import pytest
import torch

STEPS = """
import torch, torch_npu
x = torch.randn(16, 8, device="npu")
model = torch.nn.Linear(8, 8).npu()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1, fused=True)
scaler = torch.npu.amp.GradScaler(init_scale=4.0, growth_interval=2)
scale = torch.zeros((), device="npu")
for step in range(3):
    optimizer.zero_grad()
    mark = torch.npu.Event()
    with torch.autocast("npu", torch.float16):
        loss = model(x).square().mean()
    mark.record()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert step == 0 or not mark.query(), "the step waited for the device"
torch.npu.synchronize()
assert scaler.get_scale() == 8.0 and model.weight.isfinite().all()
"""


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_a_step_does_not_wait(run_on_slow_device, optimizer):
    run_on_slow_device(STEPS.format(optimizer=optimizer))


def train(device, dtype, scaler, steps=12):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 16).to(device), torch.randint(4, (64,)).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype, enabled=dtype is not None):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_losses_beside_those_of_cpu_autocast(dtype):
    exact = train("cpu", None, torch.amp.GradScaler("cpu", enabled=False))
    for scaler in (
        torch.npu.amp.GradScaler(init_scale=1024.0),
        torch.amp.GradScaler("npu", init_scale=1024.0),
    ):
        found = train("npu", dtype, scaler)
        cpu = train("cpu", dtype, torch.amp.GradScaler("cpu", init_scale=1024.0))
        allowed = 0.01 if dtype == torch.float16 else 0.05
        torch.testing.assert_close(found, cpu, rtol=allowed, atol=allowed)
        torch.testing.assert_close(found, exact, rtol=allowed, atol=allowed)


def test_a_constant_scale_stays():
    layer = torch.nn.Linear(2, 2).npu()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scaler = torch.npu.amp.GradScaler(init_scale=8.0, dynamic=False, growth_interval=1)
    for bad in (False, True, False):
        before = layer.weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(layer(torch.ones(1, 2, device="npu")).sum()).backward()
        if bad:
            layer.weight.grad.fill_(float("nan"))
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, layer.weight) is bad and scaler.get_scale() == 8.0
