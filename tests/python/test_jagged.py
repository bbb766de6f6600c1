# SPDX-License-Identifier: Apache-2.0
"""Jagged and strided nested tensors in attention and products, against each sequence by itself in float64."""

import pytest
import torch
import torch.nn.functional as F

LENGTHS, HEADS, WIDTH = (3, 5, 1, 4), 2, 8


def sequences(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(n, HEADS * WIDTH).to(dtype) for n in LENGTHS]


def attention_of_one(rows, scale=None):
    """By the definition, in the dtype of the rows."""
    q = rows.unflatten(-1, [HEADS, WIDTH]).transpose(0, 1)
    scores = q @ q.transpose(-1, -2) * (WIDTH**-0.5 if scale is None else scale)
    return (scores.softmax(-1) @ q).transpose(0, 1).flatten(-2)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 4e-3)])
def test_jagged_attention(dtype, tolerance):
    parts = sequences(dtype)
    nested = torch.nested.nested_tensor(
        [p.npu() for p in parts], layout=torch.jagged, requires_grad=True
    )
    q = nested.unflatten(-1, [HEADS, WIDTH]).transpose(1, 2)
    got = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2)
    assert got.values().device.type == "npu" and got.dtype == dtype
    got.values().square().sum().backward()

    exact = [p.double().requires_grad_() for p in parts]
    wanted = [attention_of_one(p) for p in exact]
    sum(w.square().sum() for w in wanted).backward()
    assert torch.equal(got.offsets().cpu().diff(), torch.tensor(LENGTHS))
    torch.testing.assert_close(
        got.values().detach().cpu().double(),
        torch.cat(wanted).detach(),
        rtol=tolerance,
        atol=tolerance,
    )
    torch.testing.assert_close(
        nested.grad.values().cpu().double(),
        torch.cat([p.grad for p in exact]),
        rtol=10 * tolerance,
        atol=10 * tolerance,
    )


def test_products_of_strided_nested_tensors():
    parts = [torch.randn(n, 4) for n in LENGTHS]
    nested = torch.nested.nested_tensor(parts).npu().requires_grad_()
    product = torch.matmul(nested, nested.transpose(-1, -2))
    for got, part in zip(product.unbind(), parts, strict=True):
        wanted = part.double() @ part.double().T
        torch.testing.assert_close(got.detach().cpu().double(), wanted, rtol=1e-5, atol=1e-6)
    torch.nested.to_padded_tensor(product, 0.0).sum().backward()
    for got, part in zip(nested.grad.unbind(), parts, strict=True):
        torch.testing.assert_close(got.cpu(), 2 * part.sum(0).expand_as(part))
