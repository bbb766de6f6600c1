# SPDX-License-Identifier: Apache-2.0
"""Sparse, compressed, quantised and nested tensors on the npu device."""

import pytest
import torch

LAYOUTS = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def dense():
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    return torch.where(x > 0.3, x, torch.zeros(()))


def test_coo_there_and_back():
    x = dense()
    s = x.to("npu").to_sparse()
    assert s.device.type == "npu" and s.layout == torch.sparse_coo
    assert s._values().device.type == "npu"
    assert torch.equal(s.to_dense().cpu(), x)
    assert torch.equal(x.to_sparse().to("npu").to_dense().cpu(), x)
    assert torch.equal(s.cpu().to_dense(), x)


def test_coo_constructor_and_coalesce():
    i = torch.tensor([[0, 1, 1], [2, 0, 0]], device="npu")
    v = torch.tensor([3.0, 4.0, 5.0], device="npu")
    s = torch.sparse_coo_tensor(i, v, (2, 3))
    assert not s.is_coalesced()
    c = s.coalesce()
    assert c.is_coalesced()
    assert c.values().tolist() == [3.0, 9.0] or sorted(c.values().tolist()) == [3.0, 9.0]
    assert torch.equal(s.to_dense().cpu(), torch.tensor([[0, 0, 3.0], [9.0, 0, 0]]))


def test_coo_arithmetic_and_products():
    x, y = dense(), torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    s = x.to_sparse().to("npu")
    assert torch.equal((s * 2).to_dense().cpu(), x * 2)
    assert torch.equal((s + s).to_dense().cpu(), x + x)
    assert torch.equal(torch.sparse.mm(s, y.to("npu")).cpu(), torch.sparse.mm(x.to_sparse(), y))
    assert torch.equal(torch.sparse.sum(s).cpu(), torch.sparse.sum(x.to_sparse()))


def test_coo_written_in_place():
    x = dense()
    s = x.to_sparse().to("npu")
    s.mul_(3)
    assert torch.equal(s.to_dense().cpu(), x * 3)
    other = dense().flip(0).to_sparse()
    s.add_(other.to("npu"))
    assert torch.equal(s.to_dense().cpu(), (x.to_sparse().mul_(3).add_(other)).to_dense())
    s.zero_()
    assert s._nnz() == 0


def test_coo_gradients():
    x = dense()
    grads = []
    for device in ("cpu", "npu"):
        s = x.to_sparse().to(device).requires_grad_()
        y = torch.ones(8, 3, device=device, requires_grad=True)
        torch.sparse.mm(s, y).sum().backward()
        grads.append((y.grad.cpu(), s.grad.to_dense().cpu()))
    assert torch.equal(grads[0][0], grads[1][0])
    assert torch.equal(grads[0][1], grads[1][1])


def test_sparse_embedding_trains():
    losses = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 4, sparse=True)
        table.to(device)
        optimizer = torch.optim.SparseAdam(table.parameters())
        for _ in range(3):
            loss = table(torch.tensor([1, 3, 3], device=device)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == losses[1]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_compressed_there_and_back(layout):
    x = dense()
    kwargs = {"blocksize": (2, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    s = x.to("npu").to_sparse(layout=layout, **kwargs)
    assert s.layout == layout and s.device.type == "npu"
    assert s.values().device.type == "npu"
    assert torch.equal(s.to_dense().cpu(), x)
    assert torch.equal(s.cpu().to_dense(), x)


def test_csr_products():
    x = dense()
    y = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    s = x.to_sparse_csr().to("npu")
    assert torch.equal((s @ y.to("npu")).cpu(), x.to_sparse_csr() @ y)
    assert torch.equal((s * 2).to_dense().cpu(), x * 2)


def test_quantised_per_tensor():
    x = dense()
    q = torch.quantize_per_tensor(x.to("npu"), 0.1, 3, torch.qint8)
    expected = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
    assert q.device.type == "npu" and q.is_quantized
    assert torch.equal(q.dequantize().cpu(), expected.dequantize())
    assert torch.equal(q.int_repr().cpu(), expected.int_repr())
    assert q.q_scale() == 0.1 and q.q_zero_point() == 3


def test_quantised_per_channel_keeps_its_scales():
    x = dense()
    scales, zeros = torch.rand(6) + 0.1, torch.zeros(6, dtype=torch.int64)
    q = torch.quantize_per_channel(x.to("npu"), scales.to("npu"), zeros.to("npu"), 0, torch.qint8)
    filler = [torch.zeros(6, device="npu") for _ in range(20)]
    expected = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    assert torch.equal(q.dequantize().cpu(), expected.dequantize())
    assert q.q_per_channel_scales().device.type == "npu"
    assert torch.equal(q.q_per_channel_scales().cpu(), expected.q_per_channel_scales())
    del filler


def test_quantised_there_and_back():
    x = dense()
    scales, zeros = torch.rand(6) + 0.1, torch.arange(6)
    for expected in (
        torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
        torch.quantize_per_tensor(x, 0.1, 3, torch.qint32).t(),
        torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
    ):
        q = expected.to("npu")
        assert q.device.type == "npu" and q.qscheme() == expected.qscheme()
        assert torch.equal(q.int_repr().cpu(), expected.int_repr())
        assert torch.equal(q.dequantize().cpu(), expected.dequantize())
        assert torch.equal(q.cpu(), expected)
    assert q.q_per_channel_scales().device.type == "npu"
    assert q.cpu().q_per_channel_scales().device.type == "cpu"
    assert q.q_per_channel_scales().device.type == "npu"  # the copy did not change the source


def test_nested_there_and_back():
    parts = [torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3)]
    expected = torch.nested.nested_tensor(parts)
    for dtype in (None, torch.float64):
        n = expected.to("npu", dtype)
        assert n.is_nested and n.device.type == "npu" and n.dtype == (dtype or expected.dtype)
        for got, back, part in zip(n.unbind(), n.cpu().unbind(), parts, strict=True):
            assert got.device.type == "npu"
            assert torch.equal(got.cpu(), part.to(n.dtype)) and torch.equal(back, part.to(n.dtype))


def test_nested():
    parts = [torch.arange(3.0), torch.arange(5.0)]
    n = torch.nested.nested_tensor([p.to("npu") for p in parts])
    assert n.is_nested and n.device.type == "npu"
    for part, got in zip(parts, n.unbind(), strict=True):
        assert torch.equal(got.cpu(), part)
    padded = n.to_padded_tensor(0.0)
    assert padded.device.type == "npu"
    assert torch.equal(padded.cpu(), torch.nested.nested_tensor(parts).to_padded_tensor(0.0))
    assert torch.equal((n * 2).unbind()[1].cpu(), parts[1] * 2)
    assert n._nested_tensor_size().device.type == "cpu"


def test_layouts_without_a_cpu_kernel_are_refused():
    s = dense().to_sparse().to("npu")
    with pytest.raises((NotImplementedError, RuntimeError)) as error:
        torch.fmax(s, s)
    assert "fmax" in str(error.value) or "npu" in str(error.value).lower()
