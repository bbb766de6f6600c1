# SPDX-License-Identifier: Apache-2.0
"""`from apex import amp` as programs for Ascend's apex use it (seeds/004)."""

import copy

import pytest
import torch
from apex import amp
from apex.amp._state import state
from apex.optimizers import NpuFusedAdam, NpuFusedSGD
from programs import program

F = torch.nn.functional


@pytest.fixture(autouse=True)
def casts_end_with_the_test():
    yield
    torch.set_autocast_enabled("npu", False)
    torch.set_autocast_cache_enabled(True)
    state.choices, state.scalers = None, []


def make(kind=torch.optim.SGD, device="npu", **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4),
    ).to(device)  # fmt: skip
    return model, kind(model.parameters(), **{"lr": 0.05, **options})


def data(device="npu"):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 3, 8, 8, generator=generator)
    return x.to(device), torch.randint(4, (16,), generator=generator).to(device)


def train(model, optimizer, steps=10):
    x, y = data()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def cpu_losses(dtype, kind=torch.optim.SGD, steps=10, **options):
    """PyTorch's own mixed precision on the CPU; None: float32."""
    model, optimizer = make(kind, "cpu", **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=dtype is not None)
    x, y = data("cpu")
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "level, scale, rtol",
    [("O0", None, 1e-4), ("O1", "dynamic", 0.02), ("O2", "dynamic", 0.02), ("O2", 128.0, 0.02)],
)
def test_losses_beside_those_of_cpu_autocast(level, scale, rtol):
    model, optimizer = make()
    model, optimizer = amp.initialize(
        model, optimizer, opt_level=level, loss_scale=scale, verbosity=0, dynamic_init_scale=256.0
    )
    found = train(model, optimizer)
    torch.testing.assert_close(found, cpu_losses(None), rtol=rtol, atol=rtol / 2)
    if level != "O0":
        torch.testing.assert_close(found, cpu_losses(torch.float16), rtol=rtol, atol=rtol / 2)
    assert found[-1] < found[0] / 2


@pytest.mark.parametrize(
    "ours, theirs", [(NpuFusedAdam, torch.optim.Adam), (NpuFusedSGD, torch.optim.SGD)]
)
@pytest.mark.parametrize("combine", [False, True])
def test_fused_optimizers_and_combined_gradients(ours, theirs, combine):
    model, optimizer = make(ours, lr=0.01)
    model, optimizer = amp.initialize(
        model, optimizer, opt_level="O2", loss_scale=64.0, combine_grad=combine, verbosity=0
    )
    found = train(model, optimizer)
    torch.testing.assert_close(found, cpu_losses(None, theirs, lr=0.01), rtol=0.03, atol=0.03)
    if combine:
        from apex.contrib.combine_tensors import is_combined_tensor_valid

        stash = optimizer._amp_stash
        halves = [p.grad for p in stash.trained() if p.grad.dtype == torch.float16]
        assert any(is_combined_tensor_valid(whole, halves) for whole in stash.combined)


def test_what_level_two_makes_of_a_model():
    model, optimizer = make()
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=8.0, verbosity=0)
    assert model[0].weight.dtype == torch.float16 and model[1].weight.dtype == torch.float32
    masters = list(amp.master_params(optimizer))
    assert all(p.dtype == torch.float32 for p in masters) and len(masters) == len(weights)
    for master, first in zip(masters, weights.values(), strict=True):
        torch.testing.assert_close(master.detach(), first, rtol=1e-3, atol=1e-4)
    x, y = data()
    assert model(x).dtype == torch.float32
    optimizer.zero_grad()
    with amp.scale_loss(F.cross_entropy(model(x), y), optimizer) as scaled:
        scaled.backward()
    before = [p.detach().clone() for p in masters]
    gradients = [p.grad.clone() for p in masters]
    assert all(g.dtype == torch.float32 for g in gradients)
    optimizer.step()
    for master, old, gradient in zip(masters, before, gradients, strict=True):
        torch.testing.assert_close(master.detach(), old - 0.05 * gradient)
    assert torch.equal(model[4].weight, masters[4].half())
    saved = model.state_dict()
    assert saved["0.weight"].dtype == torch.float32
    twin = copy.deepcopy(model)
    twin.load_state_dict(saved)
    assert torch.equal(twin[0].weight, model[0].weight)


@pytest.mark.parametrize("kind", [torch.optim.SGD, NpuFusedSGD])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_an_overflow_skips_the_step_and_halves_the_scale(kind, level, capsys):
    model, optimizer = make(kind)
    model, optimizer = amp.initialize(
        model, optimizer, opt_level=level, verbosity=1, dynamic_init_scale=1024.0, scale_window=2
    )
    x, y = data()
    for bad, scale in [(False, 1024.0), (True, 512.0), (False, 512.0), (False, 1024.0)]:
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        with amp.scale_loss(loss * (float("inf") if bad else 1), optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        same = all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        assert same is bad
        assert amp.state_dict()["loss_scaler0"]["loss_scale"] == scale
    if kind is torch.optim.SGD:
        assert (
            "Gradient overflow: step skipped, the scale of loss 0 is 512.0"
            in capsys.readouterr().out
        )


def test_gradients_of_several_backward_passes_add_up():
    """Three ways to the same sum: unscaled each time, left scaled until the last, at once."""
    x, y = data()

    def masters(way):
        model, optimizer = make()
        model.eval()  # batch statistics would differ between the ways
        model, optimizer = amp.initialize(
            model, optimizer, opt_level="O2", loss_scale=16.0, verbosity=0
        )
        optimizer.zero_grad()
        losses = [lambda i=i: F.cross_entropy(model(x[i::2]), y[i::2]) for i in range(2)]
        if way == "once":
            with amp.scale_loss(losses[0]() + losses[1](), optimizer) as scaled:
                scaled.backward()
        else:
            for i, loss in enumerate(losses):
                delay = way == "delay" and i == 0
                with amp.scale_loss(loss(), optimizer, delay_unscale=delay) as scaled:
                    scaled.backward()
        return [p.grad.clone() for p in amp.master_params(optimizer)]

    wanted = masters("once")
    for way in ("each", "delay"):
        for a, b in zip(masters(way), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0.01, atol=2e-4)


def test_two_losses_have_two_scales():
    models, optimizers = zip(*(make() for _ in range(2)), strict=True)
    models, optimizers = amp.initialize(
        list(models), list(optimizers), opt_level="O1", num_losses=2, verbosity=0,
        dynamic_init_scale=64.0,
    )  # fmt: skip
    x, y = data()
    for i, factor in enumerate([1.0, float("nan")]):
        loss = F.cross_entropy(models[i](x), y) * factor
        with amp.scale_loss(loss, optimizers[i], loss_id=i) as scaled:
            scaled.backward()
        optimizers[i].step()
    saved = amp.state_dict()
    assert [saved[f"loss_scaler{i}"]["loss_scale"] for i in range(2)] == [64.0, 32.0]
    saved["loss_scaler1"] = {"loss_scale": 4.0, "unskipped": 1}
    amp.load_state_dict(saved)
    assert amp.state_dict() == saved


def test_functions_of_the_users_own():
    @amp.half_function
    def low(a):
        return a.dtype

    @amp.float_function
    def wide(a):
        return a.dtype

    @amp.promote_function
    def widest(a, b):
        return a.dtype

    x = torch.ones(2, device="npu")
    assert low(x) == torch.float32  # amp is not on yet
    model, optimizer = make()
    amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    assert (low(x), wide(x.half()), widest(x.half(), x)) == (
        torch.float16, torch.float32, torch.float32,
    )  # fmt: skip
    assert (x[None] @ x[:, None]).dtype == torch.float16
    with amp.disable_casts():
        assert (x[None] @ x[:, None]).dtype == torch.float32


def test_combined_gradients_that_a_program_replaced():
    model, optimizer = make()
    model, optimizer = amp.initialize(
        model, optimizer, opt_level="O2", loss_scale=4.0, combine_grad=True, verbosity=0
    )
    train(model, optimizer, 2)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad.abs().sum() == 0 for p in model.parameters())
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    assert train(model, optimizer, 3)[-1] < 1.4


def test_weights_that_were_changed_are_seen():
    """A cast weight that was kept would be the old one."""
    model, optimizer = make()
    amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    x, _ = data()
    assert model(x).abs().sum() > 0
    with torch.no_grad():
        for p in model[-1].parameters():
            p.zero_()
    assert model(x).abs().sum() == 0


def test_a_scheduler_and_groups_that_come_later():
    model, optimizer = make()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=4.0, verbosity=0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    extra = torch.nn.Parameter(torch.ones(4, device="npu", dtype=torch.float16))
    optimizer.add_param_group({"params": [extra]})
    x, y = data()
    loss = F.cross_entropy(model(x) * extra.float(), y)
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.025
    assert extra.dtype == torch.float16 and not torch.equal(extra, torch.ones_like(extra))


def test_off():
    model, optimizer = make()
    model, optimizer = amp.initialize(model, optimizer, enabled=False, opt_level="O2")
    assert model[0].weight.dtype == torch.float32
    loss = F.cross_entropy(model(data()[0]), data()[1])
    with amp.scale_loss(loss, optimizer) as scaled:
        assert scaled is loss


def test_mistakes_are_named():
    model, optimizer = make()
    with pytest.raises(RuntimeError, match=r"call amp\.initialize"):
        with amp.scale_loss(torch.zeros(()), optimizer):
            pass
    with pytest.raises(RuntimeError, match="the letter O"):
        amp.initialize(model, optimizer, opt_level="02")
    with pytest.raises(RuntimeError, match="loss_scale is 'big'"):
        amp.initialize(model, optimizer, opt_level="O2", loss_scale="big")
    with pytest.raises(TypeError, match="a model is expected, not str"):
        amp.initialize("model", optimizer)
    with pytest.raises(RuntimeError, match=r"parameter weight is torch\.float16"):
        amp.initialize(torch.nn.Linear(2, 2).half().npu(), opt_level="O2", verbosity=0)
    amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    loss = model(data()[0]).sum()
    with pytest.raises(RuntimeError, match=r"was not given to amp\.initialize"):
        with amp.scale_loss(loss, make()[1]):
            pass
    with pytest.raises(RuntimeError, match="num_losses=1"):
        with amp.scale_loss(loss, optimizer, loss_id=1):
            pass
    with pytest.raises(RuntimeError, match="closure"):
        optimizer.step(lambda: None)
    with pytest.raises(RuntimeError, match="amp has already"):
        amp.initialize(model, optimizer, verbosity=0)


def test_a_fused_step_does_not_wait(run_on_slow_device):
    run_on_slow_device(program(__file__, "_a_fused_step_does_not_wait"))
