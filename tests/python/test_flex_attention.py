# SPDX-License-Identifier: Apache-2.0
"""torch.nn.attention.flex_attention on npu, eager: forward and backward against attention in float64."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def plain(q, k, v, bias):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("kind", ["causal", "relative"])
def test_against_float64(kind):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    ours = [torch.randn(2, 4, 64, 16, device="npu", requires_grad=True) for _ in range(3)]
    exact = [t.detach().cpu().double().requires_grad_() for t in ours]
    rows, columns = torch.arange(64)[:, None], torch.arange(64)[None]
    if kind == "causal":
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 64, 64, device="npu")
        found = flex_attention(*ours, block_mask=mask)
        bias = torch.zeros(64, 64).masked_fill(rows < columns, float("-inf")).double()
    else:
        found = flex_attention(*ours, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)
        bias = (rows - columns).double() * 0.1
    wanted = plain(*exact, bias)
    seed = torch.randn(2, 4, 64, 16)
    found.backward(seed.npu())
    wanted.backward(seed.double())
    torch.testing.assert_close(found.cpu().double(), wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=1e-4, atol=1e-5)


def test_other_devices_are_refused_as_before():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.ones(1, 1, 8, 8, device="meta")
    with pytest.raises(ValueError, match="only supported on"):
        flex_attention(q, q, q)


def test_default_stream_is_asked_of_the_right_module():
    assert torch.cuda.default_stream(torch.device("npu", 0)) == torch.npu.default_stream(0)
