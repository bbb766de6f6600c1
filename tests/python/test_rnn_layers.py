# SPDX-License-Identifier: Apache-2.0
"""nn.LSTM goes layer by layer through the kernel the CPU uses: the same bits, the same speed."""

import copy

import pytest
import torch
from faulty import faulty_environment
from programs import program

pytestmark = pytest.mark.machines


def results(model, x, state=None):
    x = x.detach().requires_grad_()
    out, (h, c) = model(x, state)
    (out.square().sum() + h.sin().sum() + c.cos().sum()).backward()
    return [out, h, c, x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_bits_are_cpus(layers, bidirectional, batch_first, bias):
    torch.manual_seed(0)
    model = torch.nn.LSTM(
        6, 8, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional
    )
    x = torch.randn(5, 3, 6)
    n = layers * (2 if bidirectional else 1)
    batch = 5 if batch_first else 3
    state = torch.randn(n, batch, 8), torch.randn(n, batch, 8)
    twin = copy.deepcopy(model).npu()
    got = results(twin, x.npu(), tuple(s.npu() for s in state))
    for a, b in zip(got, results(model, x, state), strict=True):
        assert a.device.type == "npu"
        assert torch.equal(a.cpu(), b)


def test_uses_the_layer_kernel():
    model = torch.nn.LSTM(4, 4).npu()
    torch.npu.reset_fallback_stats()
    model(torch.randn(3, 2, 4).npu())[0].sum().backward()
    seen = {r["overload"]: r["calls"] for r in torch.npu.fallback_stats(native=True) if r["calls"]}
    assert seen["aten::lstm.input"] == 1, seen
    assert seen["aten::_thnn_fused_lstm_cell_backward_impl"] == 1, seen
    assert not any(r["calls"] for r in torch.npu.fallback_stats()), "an LSTM does not fall back"


def test_without_gradients_and_in_inference_mode():
    torch.manual_seed(0)
    model = torch.nn.LSTM(4, 4, 2).eval()
    twin = copy.deepcopy(model).npu()
    x = torch.randn(3, 2, 4)
    with torch.no_grad():
        expected = model(x)[0]
        assert torch.equal(twin(x.npu())[0].cpu(), expected)
    with torch.inference_mode():
        assert torch.equal(twin(x.npu())[0].cpu(), expected)


def test_half_types():
    torch.manual_seed(0)
    for dtype in (torch.bfloat16, torch.float16):
        model = torch.nn.LSTM(4, 4).to(dtype)
        x = torch.randn(3, 2, 4).to(dtype)
        with torch.no_grad():
            got = copy.deepcopy(model).npu()(x.npu())[0]
            assert got.dtype == dtype
            # Not against the CPU's: where oneDNN has no float16 it rounds every intermediate to half.
            exact = copy.deepcopy(model).double()(x.double())[0]
            assert (got.cpu().double() - exact).abs().max() <= torch.finfo(dtype).eps


def test_double_backward():
    torch.manual_seed(0)
    model = torch.nn.LSTM(3, 4)

    def run(model, x):
        x = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        grad.square().sum().backward()
        return x.grad.cpu()

    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(run(copy.deepcopy(model).npu(), x.npu()), run(model, x))


def test_dropout_between_layers():
    torch.manual_seed(0)
    model = torch.nn.LSTM(6, 64, 2, dropout=0.5).npu()
    x = torch.randn(5, 16, 6).npu()
    torch.npu.manual_seed(3)
    first = model(x)[0]
    torch.npu.manual_seed(3)
    assert torch.equal(model(x)[0], first)
    assert not torch.equal(model(x)[0], first)
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


def test_projections_double_and_packed_go_cell_by_cell():
    torch.manual_seed(0)
    for options, dtype in (({"proj_size": 3}, torch.float32), ({}, torch.float64)):
        model = torch.nn.LSTM(4, 5, **options).to(dtype)
        x = torch.randn(3, 2, 4, dtype=dtype)
        got = copy.deepcopy(model).npu()(x.npu())[0]
        torch.testing.assert_close(got.cpu(), model(x)[0])
    model = torch.nn.LSTM(4, 5, bidirectional=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(4, 2, 4), [4, 2])
    got = copy.deepcopy(model).npu()(packed.to("npu"))[0]
    torch.testing.assert_close(got.data.cpu(), model(packed)[0].data)


def test_autocast_computes_in_half_precision():
    model = torch.nn.LSTM(4, 4).npu()
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert model(torch.randn(3, 2, 4).npu())[0].dtype == torch.bfloat16


def test_wrong_sizes_are_refused():
    """oneDNN would read past the end of such weights."""
    model = torch.nn.LSTM(5, 7).npu()
    weights = list(model.parameters())
    x = torch.randn(4, 3, 5).npu()

    def run(hidden, params=weights, x=x):
        state = torch.zeros(1, 3, hidden).npu(), torch.zeros(1, 3, hidden).npu()
        return torch.lstm(x, state, params, True, 1, 0.0, True, False, False)

    assert run(7)[0].shape == (4, 3, 7)
    with pytest.raises(RuntimeError):
        run(8)
    with pytest.raises(RuntimeError):
        run(7, x=torch.randn(4, 3, 6).npu())
    with pytest.raises(RuntimeError):
        run(7, params=[weights[0], weights[1][:, :5], *weights[2:]])
    with pytest.raises(RuntimeError, match="hidden"):
        torch.lstm(x, (torch.zeros(1, 3, 7).npu(),), weights, True, 1, 0.0, True, False, False)


def test_empty_batch():
    out, _ = torch.nn.LSTM(4, 5).npu()(torch.randn(3, 0, 4).npu())
    assert out.shape == (3, 0, 5)


SEQUENCES = [
    (torch.nn.GRU, {}),
    (torch.nn.RNN, {"nonlinearity": "tanh"}),
    (torch.nn.RNN, {"nonlinearity": "relu"}),
]


@pytest.mark.parametrize(("kind", "options"), SEQUENCES)
def test_sequences_with_state_and_second_derivatives(kind, options):
    torch.manual_seed(0)
    model = kind(3, 40, 2, bidirectional=True, batch_first=True, **options)

    def run(model, x, state):
        x, state = x.detach().requires_grad_(), state.detach().requires_grad_()
        out, last = model(x, state)
        loss = out.square().sum() + last.sin().sum()
        grads = torch.autograd.grad(loss, (x, state), create_graph=True)
        sum(g.square().sum() for g in grads).backward()
        return [out, last, *grads, x.grad, state.grad, *(p.grad for p in model.parameters())]

    x, state = torch.randn(2, 4, 3), torch.randn(4, 2, 40)
    got = run(copy.deepcopy(model).npu(), x.npu(), state.npu())
    for a, b in zip(got, run(model, x, state), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


def test_the_inputs_products_are_one_gemm():
    model = torch.nn.GRU(4, 5).npu()
    torch.npu.reset_fallback_stats()
    model(torch.randn(6, 2, 4).npu())
    calls = {r["overload"]: r["calls"] for r in torch.npu.fallback_stats(native=True)}
    assert calls.get("aten::mm", 0) <= 7, calls  # six steps and the input


@pytest.mark.parametrize(("kind", "options"), SEQUENCES)
def test_sequences_refuse_wrong_sizes(kind, options):
    model = kind(4, 5, **options).npu()
    with pytest.raises(RuntimeError):
        model(torch.randn(3, 2, 6).npu())
    with pytest.raises(RuntimeError):
        model(torch.randn(3, 2, 4).npu(), torch.zeros(1, 2, 6).npu())
    model.weight_hh_l0 = torch.nn.Parameter(torch.randn(5, 5).npu()[:, :3])
    with pytest.raises(RuntimeError):
        model(torch.randn(3, 2, 4).npu())


@pytest.mark.parametrize("x", [1e-4, 0.62, 0.63, 5.0, 50.0, float("inf"), float("nan")])
def test_cells_at_both_ends(x):
    """sigmoid and tanh of the float32 cells are right for small, large and no numbers."""
    gates = torch.tensor([[x, -x, x, -x] * 4])
    cx = torch.full((1, 4), 0.5)
    cell = torch.ops.aten._thnn_fused_lstm_cell
    hy, cy, saved = cell(gates.npu(), torch.zeros_like(gates).npu(), cx.npu())
    i, f, g, o = gates.double().chunk(4, 1)
    parts = torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], 1)
    torch.testing.assert_close(saved.cpu().double(), parts, rtol=5e-7, atol=1e-38, equal_nan=True)
    c = parts[:, 4:8] * cx + parts[:, :4] * parts[:, 8:12]
    for a, b in ((hy, o.sigmoid() * c.tanh()), (cy, c)):
        torch.testing.assert_close(a.cpu().double(), b, rtol=5e-7, atol=1e-7, equal_nan=True)


CELLS = program(__file__, "_cells")


def test_a_driver_with_cells_runs_them(run_python):
    # The faulty driver forwards to the host driver's kernels, but is not the host driver.
    run_python(CELLS, **faulty_environment(), NPU_HOST_KERNELS="all")
