# SPDX-License-Identifier: Apache-2.0
"""torch.compile with the backends that need no code generator, and torch.export."""

import copy

import pytest
import torch
from small_models import MODELS, make

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition"]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def step(model, x):
    out = model(x)
    out.sin().sum().backward()
    return out, {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_compiled_models_train_as_eager(name, backend):
    model, x = make(name)
    eager, x = model.npu(), x.npu()
    compiled = torch.compile(copy.deepcopy(eager), backend=backend)
    for _ in range(2):
        want, wanted = step(eager, x)
        got, gradients = step(compiled, x)
        torch.testing.assert_close(got, want)
        gradients = {key.removeprefix("_orig_mod."): grad for key, grad in gradients.items()}
        torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-5)
        for m in (eager, compiled):
            m.zero_grad()


def test_cross_entropy_is_traced_in_parts():
    target = torch.tensor([0, 2, 4, 1], device="npu")
    x = torch.randn(4, 5, dtype=torch.float64, device="npu", requires_grad=True)

    def loss(x):
        return torch.nn.functional.cross_entropy(x, target, label_smoothing=0.1)

    compiled = torch.compile(loss, backend="aot_eager")
    for got, wanted in zip(
        torch.autograd.grad(compiled(x), x), torch.autograd.grad(loss(x), x), strict=True
    ):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_a_whole_graph_of_changing_shapes(backend):
    function = torch.compile(
        lambda x, y: torch.softmax(x @ y, -1).cumsum(0),
        backend=backend,
        dynamic=True,
        fullgraph=True,
    )
    for n in (3, 5, 8):
        x, y = torch.randn(n, 4, device="npu"), torch.randn(4, n + 1, device="npu")
        torch.testing.assert_close(function(x, y), torch.softmax(x @ y, -1).cumsum(0))


def test_what_programs_do_inside(recwarn):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def body(x):
        with torch.autocast("npu", torch.bfloat16):
            y = x @ x
        y = y.float() + torch.zeros(x.shape[0], device=x.device) + torch.arange(4, device="npu")
        if x.device.type == "npu" and x.is_npu:
            y = y.to("cpu").npu()
        return y.contiguous()

    x = torch.eye(4, device="npu")
    torch.testing.assert_close(body(x), x + torch.arange(4, device="npu"))


def test_torch_npu_calls_break_the_graph_and_work():
    @torch.compile(backend="aot_eager")
    def body(x):
        y = x * 2
        torch.npu.synchronize()
        with torch.npu.stream(torch.npu.current_stream()):
            z = y + torch.npu.current_device()
        return z

    assert body(torch.ones(3, device="npu")).tolist() == [2, 2, 2]


def test_facts_about_the_device_are_constants():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def body(x):
        if torch.npu.is_available() and torch.npu.is_bf16_supported():
            x = x + torch.npu.device_count()
        return x * 2 if "Ascend" in torch.npu.get_device_name() else x

    two = 2 if "Ascend" in torch.npu.get_device_name() else 1
    assert body(torch.ones(1, device="npu")).item() == (1 + torch.npu.device_count()) * two


def test_random_numbers():
    drop = torch.compile(lambda x: torch.dropout(x, 0.5, True), backend="aot_eager")
    x = torch.ones(1000, device="npu", requires_grad=True)
    torch.npu.manual_seed(3)
    first = drop(x)
    first.sum().backward()
    torch.npu.manual_seed(3)
    again = drop(x)
    assert torch.equal(first, again) and torch.equal(x.grad, first.detach())
    assert 300 < (first == 0).sum().item() < 700


# PyTorch's backend "eager" draws anew in a checkpoint, on every device.
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_a_checkpoint_draws_the_same_numbers_again(backend):
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(8, 8).npu()
    x = torch.randn(4, 8, device="npu", requires_grad=True)

    def block(x):
        return torch.nn.functional.dropout(layer(x), 0.5) * torch.rand(8, device="npu")

    def loss(x):
        return checkpoint(block, x, use_reentrant=False).sin().sum()

    def run(function):
        x.grad = None
        layer.zero_grad()
        torch.npu.manual_seed(3)
        out = function(x)
        out.backward()
        # The state goes on from where the forward left it.
        return out, x.grad, layer.weight.grad.clone(), torch.rand(3, device="npu")

    torch.testing.assert_close(run(torch.compile(loss, backend=backend)), run(loss))


def test_a_checkpoint_on_the_cpu_is_left_alone():
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(4, 8, requires_grad=True)

    def loss(x):
        block = lambda x: torch.nn.functional.dropout(x, 0.5)  # noqa: E731
        return checkpoint(block, x, use_reentrant=False).sin().sum()

    results = []
    for function in (loss, torch.compile(loss, backend="aot_eager")):
        torch.manual_seed(3)
        out = function(x)
        results.append((out, *torch.autograd.grad(out, x)))
    torch.testing.assert_close(*results)


def test_in_place_and_views():
    def body(x):
        y = x.view(-1)
        y[1:].mul_(3)
        x.add_(1)
        return y.reshape(2, 2).t()

    x = torch.arange(4.0, device="npu").view(2, 2)
    want, got = x.clone(), x.clone()
    out = torch.compile(body, backend="aot_eager")(got)
    assert torch.equal(out, body(want)) and torch.equal(got, want)
    assert out._base is not None or out.data_ptr() == got.data_ptr()


@pytest.mark.parametrize("name", MODELS)
def test_export(name, tmp_path):
    model, x = make(name)
    model, x = model.npu().eval(), x.npu()
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    torch.testing.assert_close(loaded.module()(x), model(x))


def test_export_with_a_dynamic_batch():
    model, x = make("gpt")
    model, x = model.npu().eval(), x.npu()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    wide = torch.cat([x, x, x])
    torch.testing.assert_close(program.module()(wide), model(wide))
    assert program.run_decompositions().graph is not None


# Plain torch.compile ---------------------------------------------------------

# What the generated code computes is in tests/graph/test_inductor.py.


@pytest.mark.parametrize("kwargs", [{"mode": "reduce-overhead"}, {"backend": "inductor"}])
def test_plain_compile(kwargs):
    layer, x = torch.nn.Linear(4, 4).npu(), torch.ones(2, 4, device="npu")
    torch.testing.assert_close(torch.compile(layer, **kwargs)(x), layer(x))


def test_plain_compile_of_a_function_that_makes_npu_tensors():
    function = torch.compile(lambda n: torch.ones(n, device="npu") + 1)
    assert function(3).tolist() == [2, 2, 2] and function(3).device.type == "npu"


def test_plain_compile_of_cpu_models_is_left_alone(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "torch._inductor.compile_fx.compile_fx", lambda model, inputs, **_: seen.append(1) or model
    )
    out = torch.compile(torch.nn.Linear(4, 4))(torch.ones(2, 4))
    assert out.shape == (2, 4) and seen
