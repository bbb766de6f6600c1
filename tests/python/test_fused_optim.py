# SPDX-License-Identifier: Apache-2.0
"""Optimizers with foreach and fused steps, torch_npu.optim, and loss scaling."""

import copy

import pytest
import torch
import torch_npu
from torch_npu import optim as npu_optim

pytestmark = pytest.mark.machines

SIZES = [(7, 3), (5,), (), (40, 300), (0,)]
OPTIMIZERS = {
    "adam": (torch.optim.Adam, dict(lr=1e-2)),
    "adam-decay": (torch.optim.Adam, dict(lr=1e-2, weight_decay=0.1)),
    "adam-amsgrad": (torch.optim.Adam, dict(lr=1e-2, amsgrad=True, betas=(0.4, 0.8))),
    "adamw": (torch.optim.AdamW, dict(lr=1e-2)),
    "adamw-amsgrad": (torch.optim.AdamW, dict(lr=1e-2, amsgrad=True, maximize=True)),
    "adamw-tensor-lr": (torch.optim.AdamW, dict(lr=0.01)),
    "sgd": (torch.optim.SGD, dict(lr=0.1)),
    "sgd-momentum": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1)),
    "sgd-nesterov": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, maximize=True)),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.1, weight_decay=0.1)),
}
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def start(device, dtype):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype).to(device)) for s in SIZES
    ]


def train(name, device, dtype, steps=4, **how):
    make, options = OPTIMIZERS[name]
    params = start(device, dtype)
    options = dict(options)
    if name.endswith("tensor-lr"):
        options["lr"] = torch.tensor(options["lr"], device=device)
    optimizer = make(params, **options, **how)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(dtype).to(device)
        optimizer.step()
    return params, optimizer


def check_same(got, expected, dtype):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(
            a.detach().cpu(), b.detach().cpu(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fused_is_cpus_fused(name, dtype):
    # CPU's fused SGD loses updates of half types: there the reference is the plain step.
    plain = name.startswith("sgd") and dtype in (torch.bfloat16, torch.float16)
    expected, theirs = train(name, "cpu", dtype, fused=not plain)
    got, ours = train(name, "npu", dtype, fused=True)
    check_same(got, expected, dtype)
    for p, q in zip(got, expected, strict=True):
        mine = ours.state[p]
        for key, value in theirs.state[q].items():
            if isinstance(value, torch.Tensor):
                check_same([mine[key]], [value], torch.float32 if key == "step" else dtype)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "adamw-tensor-lr"])
def test_foreach_is_one_by_one(name):
    expected, _ = train(name, "cpu", torch.float32, foreach=False)
    check_same(train(name, "npu", torch.float32, foreach=True)[0], expected, torch.float32)


def test_foreach_is_the_default_on_npu(run_python):
    code = (
        "import torch, torch_npu\n"
        "seen = []\n"
        "kept = torch._foreach_addcdiv_\n"
        "torch._foreach_addcdiv_ = lambda *a, **k: (seen.append(1), kept(*a, **k))\n"
        "p = torch.nn.Parameter(torch.ones(3).npu()); p.grad = torch.ones_like(p)\n"
        "torch.optim.AdamW([p]).step()\n"
        "assert seen\n"
    )
    run_python(code)


CALLS = """
import torch, torch_npu
params = [torch.nn.Parameter(torch.ones(n).npu()) for n in (3, 400, 70000)]
for p in params:
    p.grad = torch.ones_like(p)
optimizer = torch.optim.AdamW(params, fused=True)
optimizer.step()
optimizer.step()
"""


def test_a_step_is_one_call(run_python):
    text = run_python(CALLS, ASCEND_GLOBAL_LOG_LEVEL="0", SLOG_PRINT_TO_STDOUT="1").stdout
    lists = [line for line in text.splitlines() if "run on" in line and " list " in line]
    # Each step counts itself and then updates.
    assert ["optimizer.adamw" in line for line in lists] == [False, True] * 2, text


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("name", ["adamw", "sgd-momentum", "adagrad"])
def test_grad_scale_and_found_inf(name, found):
    def run(device):
        make, options = OPTIMIZERS[name]
        params = start(device, torch.float32)
        optimizer = make(params, **options, fused=True)
        for _ in range(2):
            for i, p in enumerate(params):
                p.grad = torch.full_like(p, 4.0 * (i + 1))
            optimizer.grad_scale = torch.tensor(2.0, device=device)
            optimizer.found_inf = torch.tensor(found, device=device)
            optimizer.step()
        return [*params, *(p.grad for p in params)]

    got, expected = run("npu"), run("cpu")
    check_same(got, expected, torch.float32)
    if found:
        check_same(got[: len(SIZES)], start("cpu", torch.float32), torch.float32)


def test_fused_on_the_lower_rungs(run_python):
    """Without the kind, and with tensors no single call takes, the CPU's kernel does it."""
    code = (
        "import torch, torch_npu\n"
        "def run(device):\n"
        "    p = torch.nn.Parameter(torch.ones(6, 4, device=device).t())\n"
        "    q = torch.nn.Parameter(torch.ones(6, device=device))\n"
        "    p.grad = torch.full((4, 6), 2.0, device=device); q.grad = torch.ones_like(q)\n"
        "    optimizer = torch.optim.AdamW([p, q], fused=True)\n"
        "    optimizer.step(); optimizer.step()\n"
        "    return p.detach().cpu(), q.detach().cpu()\n"
        "for a, b in zip(run('npu'), run('cpu')):\n"
        "    torch.testing.assert_close(a, b)\n"
    )
    run_python(code)
    run_python(code, NPU_DISABLE_KIND="optimizer")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("bad", [None, float("inf"), float("nan")])
def test_unscale(dtype, bad):
    grads = [torch.randn(s).to(dtype) for s in SIZES]
    if bad is not None:
        grads[3][20, 17] = bad

    def run(device):
        mine = [g.clone().to(device) for g in grads]
        found = torch.zeros(1, device=device)
        scale = torch.full((1,), 0.25, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(mine, found, scale)
        return [*mine, found]

    for a, b in zip(run("npu"), run("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, equal_nan=True)


def test_update_scale():
    def run(device):
        scale = torch.tensor(8.0, device=device)
        tracker = torch.tensor(0, dtype=torch.int32, device=device)
        seen = []
        for found in (0, 0, 1, 0, 0, 0):
            flag = torch.tensor(float(found), device=device)
            torch._amp_update_scale_(scale, tracker, flag, 2.0, 0.5, 2)
            seen.append((scale.item(), tracker.item()))
        return seen

    assert run("npu") == run("cpu")


def test_update_scale_never_overflows():
    scale = torch.tensor(3e38).npu()
    tracker = torch.tensor(0, dtype=torch.int32).npu()
    torch._amp_update_scale_(scale, tracker, torch.tensor(0.0).npu(), 2.0, 0.5, 1)
    assert scale.isfinite() and tracker.item() == 0


def test_grad_scaler_trains():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1).npu()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("npu", init_scale=2.0**10)
    x = torch.randn(8, 4).npu()
    before = model.weight.detach().clone()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.weight)
    after = model.weight.detach().clone()
    scaler.scale(model(x).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(after, model.weight) and scaler.get_scale() == 2.0**9


# ---- torch_npu.optim ----

TWINS = {
    "NpuFusedAdam": (torch.optim.Adam, dict(lr=1e-2, weight_decay=0.1, amsgrad=True)),
    "NpuFusedAdamW": (torch.optim.AdamW, dict(lr=1e-2)),
    "NpuFusedSGD": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
    "NpuFusedRMSprop": (torch.optim.RMSprop, dict(lr=0.1, momentum=0.5, centered=True)),
    "NpuFusedAdadelta": (torch.optim.Adadelta, dict(lr=0.5, weight_decay=0.1)),
}


def steps(optimizer, params, n=3):
    generator = torch.Generator().manual_seed(1)
    for _ in range(n):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype).to(p.device)
        optimizer.step()


@pytest.mark.parametrize("name", TWINS)
def test_npu_fused_is_torchs(name):
    make, options = TWINS[name]
    expected, got = start("cpu", torch.float32), start("npu", torch.float32)
    steps(make(expected, **options), expected)
    steps(getattr(npu_optim, name)(got, **options), got)
    check_same(got, expected, torch.float32)


def reference_lamb(p, g, state, lr, betas, eps, decay):
    state["m"] = betas[0] * state["m"] + (1 - betas[0]) * g
    state["v"] = betas[1] * state["v"] + (1 - betas[1]) * g * g
    step = state["m"] / (state["v"].sqrt() + eps) + decay * p
    weight, length = p.norm().clamp(max=10), step.norm()
    ratio = weight / length if weight != 0 and length != 0 else 1.0
    return p - lr * ratio * step


def test_lamb():
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.randn(6, 5).npu())
    expected = p.detach().cpu().double()
    state = {"m": torch.zeros_like(expected), "v": torch.zeros_like(expected)}
    optimizer = npu_optim.NpuFusedLamb([p], lr=0.1, weight_decay=0.01)
    for _ in range(3):
        g = torch.randn(6, 5)
        p.grad = g.npu()
        optimizer.step()
        expected = reference_lamb(expected, g.double(), state, 0.1, (0.9, 0.999), 1e-6, 0.01)
    torch.testing.assert_close(p.detach().cpu().double(), expected, rtol=1e-5, atol=1e-6)


def test_bert_adam_and_its_warmup():
    p = torch.nn.Parameter(torch.ones(4).npu())
    options = dict(lr=0.1, warmup=0.5, t_total=10, max_grad_norm=-1, weight_decay=0.0)
    optimizer = npu_optim.NpuFusedBertAdam([p], **options)
    p.grad = torch.ones_like(p)
    assert optimizer.get_lr() == [0]
    optimizer.step()
    assert torch.equal(p.detach().cpu(), torch.ones(4)), "the rate starts at 0"
    optimizer.step()
    # m = 1 - 0.9^2, v = 1 - 0.999^2 after two equal gradients; a fifth of the warmup is done.
    step = 0.19 / ((1 - 0.999**2) ** 0.5 + 1e-6) * 0.1 * 0.2
    torch.testing.assert_close(p.detach().cpu(), torch.full((4,), 1 - step))
    with pytest.raises(ValueError, match="schedule"):
        npu_optim.NpuFusedBertAdam([p], schedule="warmup_square")
    with pytest.raises(ValueError, match="warmup"):
        npu_optim.NpuFusedBertAdam([p], warmup=1.5)


def test_rmsprop_tf_starts_at_one():
    p = torch.nn.Parameter(torch.zeros(3).npu())
    optimizer = npu_optim.NpuFusedRMSpropTF([p], lr=0.1, momentum=0.9)
    p.grad = torch.full_like(p, 2.0)
    optimizer.step()
    first = 0.1 * 2 / (0.9 * 1 + 0.1 * 4) ** 0.5
    torch.testing.assert_close(p.detach().cpu(), torch.full((3,), -first))


def test_adamp_projects_scale_invariant_weights():
    torch.manual_seed(0)
    weight = torch.randn(4, 50)
    gradient = torch.randn(4, 50)
    gradient -= weight * (weight * gradient).sum(1, keepdim=True) / (weight**2).sum(1, keepdim=True)
    p = torch.nn.Parameter(weight.npu())
    p.grad = gradient.npu()
    npu_optim.NpuFusedAdamP([p], lr=0.01).step()
    moved = p.detach().cpu() - weight
    along = (moved * weight).sum(1) / weight.norm(dim=1)
    assert along.abs().max() < 1e-5, "nothing of the step is along the weight"
    assert moved.norm() > 0.01


def test_groups_dtypes_and_state_dict():
    params = [
        torch.nn.Parameter(torch.ones(3).npu()),
        torch.nn.Parameter(torch.ones(2).npu().half()),
    ]
    groups = [{"params": [params[0]], "lr": 0.1}, {"params": [params[1]]}]
    optimizer = npu_optim.NpuFusedLamb(groups, lr=0.01)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert optimizer.state[params[1]]["exp_avg"].dtype == torch.half
    other = npu_optim.NpuFusedLamb(copy.deepcopy(groups), lr=0.01)
    other.load_state_dict(optimizer.state_dict())
    assert other.state_dict()["state"][0]["step"] == 1
    with pytest.raises(ValueError, match="lr"):
        npu_optim.NpuFusedLamb(params, lr=-1)


def test_combined_tensors_are_the_parameters():
    model = torch.nn.Linear(3, 2).npu()
    model(torch.ones(1, 3).npu()).sum().backward()
    optimizer = torch_npu.optim.NpuFusedAdamW(model.parameters())
    (params,), (grads,) = optimizer.get_combined_params(), optimizer.get_combined_grads()
    assert params.shape == grads.shape == (8,)
    params.zero_()
    assert not model.weight.any()
    grads.fill_(3.0)
    assert (model.bias.grad == 3).all()
    norm = optimizer.clip_grad_norm_fused_(1.0)
    torch.testing.assert_close(norm.cpu(), torch.tensor((8 * 9.0) ** 0.5))
    optimizer.step()
    assert (model.weight != 0).all()


@pytest.mark.parametrize("order", ["gaps", "turned", "mixed"])
@pytest.mark.parametrize("name", ["adamw-amsgrad", "sgd-momentum", "adagrad"])
def test_fused_step_of_any_layout(name, order):
    """PyTorch's CPU kernels write into the gaps; the plain step is the reference."""

    def laid_out(x, i):
        if order == "gaps":
            memory = torch.full((*x.shape[:-1], 2 * x.shape[-1]), 7.0, device=x.device)
            return memory[..., ::2].copy_(x)
        turned = order == "turned" or i % 2
        return x.t().contiguous().t() if turned else x.clone()

    def run(device, how):
        make, options = OPTIMIZERS[name]
        generator = torch.Generator().manual_seed(0)
        rows = [torch.randn(s, generator=generator).to(device) for s in ((4, 6), (3, 5))]
        params = [laid_out(x, 1).requires_grad_() for x in rows]
        optimizer = make(params, **options, **how)
        for step in range(2):
            for p, x in zip(params, rows, strict=True):
                p.grad = laid_out(x * (step + 1), 0)
            optimizer.step()
        if order == "gaps":
            for p in params:
                memory = torch.as_strided(
                    p.detach(), (p.shape[0], 2 * p.shape[1]), (p.stride(0), 1)
                )
                assert (memory[:, 1::2] == 7.0).all()
        return params

    check_same(run("npu", {"fused": True}), run("cpu", {"foreach": False}), torch.float32)


def test_sizes_that_differ_end(run_python):
    """Whatever PyTorch's kernel makes of them: the step comes back, and the device works."""
    run_python(
        "import torch, torch_npu\n"
        "new = lambda *size: torch.ones(size, device='npu')\n"
        "try:\n"
        "    torch._fused_sgd_([new(4, 6)], [new(6, 4)], [new(4, 6)], weight_decay=0.0, momentum=0.9, lr=0.1,\n"
        "                      dampening=0.0, nesterov=False, maximize=False, is_first_step=False)\n"
        "except RuntimeError:\n"
        "    pass\n"
        "assert new(3).sum().item() == 3\n"
    )
