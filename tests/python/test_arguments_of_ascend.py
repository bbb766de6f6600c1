# SPDX-License-Identifier: Apache-2.0
"""Arguments that Ascend takes and PyTorch's CPU refuses, and results that float64 decides."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence

HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_put_takes_int32_indices(kind, accumulate):
    index = torch.tensor([2, 0, 2], dtype=kind, device="npu")
    given = torch.tensor([1.0, 2.0, 1.0], device="npu")
    x = torch.ones(2, 2, device="npu")
    made = x.put(index, given, accumulate)
    x.put_(index, given, accumulate)
    wanted = [[3.0, 1.0], [3.0, 1.0]] if accumulate else [[2.0, 1.0], [1.0, 1.0]]
    assert made.tolist() == x.tolist() == wanted


def test_renorm_by_the_number_of_elements():
    x = torch.tensor([[0.0, 2.0, 3.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    got = torch.renorm(x.npu(), 0, 0, 2.0).cpu()
    wanted = torch.stack([x[0], x[1] * 2 / (3 + 1e-7), x[2]])
    torch.testing.assert_close(got, wanted)
    with pytest.raises(RuntimeError, match="norm"):
        torch.renorm(x.npu(), -1, 0, 2.0)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_lengths_of_packed_sequences(kind, device):
    x = torch.randn(3, 2, 4)
    wanted = pack_padded_sequence(x, torch.tensor([3, 2]))
    leaf = x.npu().requires_grad_()
    got = pack_padded_sequence(leaf, torch.tensor([3, 2], dtype=kind, device=device))
    assert torch.equal(got.data.cpu(), wanted.data)
    assert torch.equal(got.batch_sizes, wanted.batch_sizes)
    got.data.sum().backward()
    assert leaf.grad.cpu()[:, 1, 0].tolist() == [1, 1, 0]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("half", HALVES)
def test_gradients_of_bce_with_logits_are_rounded_once(half, weighted, reduction):
    draw = torch.Generator().manual_seed(2)
    x, target = torch.randn(300, generator=draw).to(half), torch.rand(300, generator=draw).to(half)
    more = {}
    if weighted:
        more = {name: torch.rand(300, generator=draw).to(half) for name in ("weight", "pos_weight")}

    def gradient(given):
        leaf = given(x).requires_grad_()
        loss = F.binary_cross_entropy_with_logits(
            leaf, given(target), reduction=reduction, **{n: given(v) for n, v in more.items()}
        )
        loss.sum().backward()
        assert loss.dtype == leaf.grad.dtype == leaf.dtype
        return leaf.grad.cpu()

    exact = gradient(torch.Tensor.double).to(half)
    for run in (gradient, torch.compile(gradient, backend="npu")):
        got = run(torch.Tensor.npu)
        # Halfway between two numbers float32 may choose the other one.
        assert (got != exact).sum() <= 3, (got - exact).abs().max()


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("dims", [2, 3])
def test_slow_transposed_convolutions_are_rounded_once(half, dims):
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(2, 4, *[5] * dims, generator=draw).to(half)
    w = torch.randn(4, 3, *[3] * dims, generator=draw).to(half)
    op = getattr(torch.ops.aten, f"slow_conv_transpose{dims}d")
    got = op(x.npu(), w.npu(), [3] * dims).cpu()
    exact = op(x.double(), w.double(), [3] * dims).to(half)
    assert (got != exact).float().mean() < 0.01
