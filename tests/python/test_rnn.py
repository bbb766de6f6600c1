# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: the fused cells have no CPU kernel, so these are compared within tolerance."""

import copy

import pytest
import torch

pytestmark = pytest.mark.machines


def outputs_and_grads(model, x, state=None):
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    out, last = model(x, state) if state is not None else model(x)
    lasts = last if isinstance(last, tuple) else (last,)
    (out.square().sum() + sum(h.sin().sum() for h in lasts)).backward()
    return [out, *lasts, x.grad, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}]
)
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_layers(kind, options, bias):
    torch.manual_seed(0)
    model = kind(5, 7, bias=bias, **options)
    x = torch.randn(4, 3, 5)
    expected = outputs_and_grads(model, x)
    got = outputs_and_grads(copy.deepcopy(model).npu(), x.npu())
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_packed_sequences(kind):
    torch.manual_seed(0)
    model = kind(3, 4)
    x = torch.randn(5, 2, 3)
    packed = torch.nn.utils.rnn.pack_padded_sequence

    def run(model, x):
        out, _ = model(packed(x, [5, 3]))
        return torch.nn.utils.rnn.pad_packed_sequence(out)[0].cpu()

    torch.testing.assert_close(run(copy.deepcopy(model).npu(), x.npu()), run(model, x))


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_cells_and_partial_gradients(kind):
    torch.manual_seed(0)
    cell = kind(3, 4)
    x = torch.randn(2, 3)

    def run(cell, x):
        cell.zero_grad()
        out = cell(x)
        last = out[1] if isinstance(out, tuple) else out  # only the cell state gets a gradient
        last.sum().backward()
        return [p.grad.cpu() for p in cell.parameters()]

    for a, b in zip(run(copy.deepcopy(cell).npu(), x.npu()), run(cell, x), strict=True):
        torch.testing.assert_close(a, b)


def test_gradcheck_of_the_fused_cells():
    torch.manual_seed(0)
    leaf = lambda *shape: torch.randn(*shape, dtype=torch.float64).npu().requires_grad_()  # noqa: E731
    lstm = lambda *a: torch.ops.aten._thnn_fused_lstm_cell(*a)[:2]  # noqa: E731
    assert torch.autograd.gradcheck(
        lstm, (leaf(2, 12), leaf(2, 12), leaf(2, 3), leaf(12), leaf(12))
    )
    gru = lambda *a: torch.ops.aten._thnn_fused_gru_cell(*a)[0]  # noqa: E731
    assert torch.autograd.gradcheck(gru, (leaf(2, 9), leaf(2, 9), leaf(2, 3), leaf(9), leaf(9)))
