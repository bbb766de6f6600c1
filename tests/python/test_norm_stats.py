# SPDX-License-Identifier: Apache-2.0
"""Batch norm in pieces (SyncBatchNorm), and products with an output type of their own."""

import pytest
import torch
import torch.nn.functional as F
from child import run_child
from faulty import faulty_environment
from programs import program

pytestmark = pytest.mark.machines


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 2, 5)], ids=str)
def test_pieces_make_a_whole_batch_norm(shape):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    weight, bias = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    grad = torch.randn(shape, dtype=torch.float64)
    running = [torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    expected = F.batch_norm(leaves[0], *running, *leaves[1:], training=True, momentum=0.1, eps=1e-5)
    expected.backward(grad)

    # Two uneven parts, as two processes would have them.
    parts, grads = (t.npu().split([1, shape[0] - 1]) for t in (x, grad))
    w, b = weight.npu(), bias.npu()
    kept = [torch.zeros(3, dtype=torch.float64).npu(), torch.ones(3, dtype=torch.float64).npu()]
    stats = [torch.batch_norm_stats(p, 1e-5) for p in parts]
    mean, invstd = (torch.stack(s) for s in zip(*stats, strict=True))
    counts = torch.tensor([float(p.numel() // 3) for p in parts], dtype=torch.float64, device="npu")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0], mean, invstd, *kept, 0.1, 1e-5, counts
    )
    out = torch.cat([torch.batch_norm_elemt(p, w, b, mean, invstd, 1e-5) for p in parts])
    torch.testing.assert_close(out.cpu(), expected.detach())
    for got, want in zip(kept, running, strict=True):
        torch.testing.assert_close(got.cpu(), want)

    reduced = [
        torch.batch_norm_backward_reduce(g, p, mean, invstd, w, True, True, True)
        for g, p in zip(grads, parts, strict=True)
    ]
    sum_dy, sum_dy_xmu, dw, db = (sum(column) for column in zip(*reduced, strict=True))
    dx = torch.cat(
        [
            torch.batch_norm_backward_elemt(g, p, mean, invstd, w, sum_dy, sum_dy_xmu, counts.int())
            for g, p in zip(grads, parts, strict=True)
        ]
    )
    for got, leaf in zip((dx, dw, db), leaves, strict=True):
        torch.testing.assert_close(got.cpu(), leaf.grad)


def test_half_precision_keeps_its_statistics_in_float():
    x = torch.randn(8, 3, 4).half().npu()
    mean, invstd = torch.batch_norm_stats(x, 1e-5)
    assert mean.dtype == invstd.dtype == torch.float32
    assert torch.batch_norm_elemt(x, None, None, mean, invstd, 1e-5).dtype == torch.float16
    out = torch.empty(0, dtype=torch.float16, device="npu")
    torch.batch_norm_elemt(x, None, None, mean, invstd, 1e-5, out=out)
    assert out.shape == x.shape
    sum_dy, _, dw, db = torch.batch_norm_backward_reduce(
        x, x, mean, invstd, None, True, False, False
    )
    assert sum_dy.dtype == torch.float32 and dw is None and db is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_with_an_output_type(dtype):
    torch.manual_seed(0)
    a, b, c = (torch.randn(4, 4).to(dtype) for _ in range(3))
    x, y, z = a.npu(), b.npu(), c.npu()
    wide = [t.float() for t in (a, b, c)]
    out = torch.mm(x, y, out_dtype=torch.float32)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.cpu(), wide[0] @ wide[1])
    torch.testing.assert_close(
        torch.bmm(x[None], y[None], out_dtype=torch.float32)[0].cpu(), wide[0] @ wide[1]
    )
    expected = torch.addmm(wide[2], wide[0], wide[1], beta=0.5, alpha=2)
    got = torch.addmm(z, x, y, out_dtype=torch.float32, beta=0.5, alpha=2)
    torch.testing.assert_close(got.cpu(), expected)
    got = torch.baddbmm(z[None], x[None], y[None], out_dtype=torch.float32, beta=0.5, alpha=2)
    torch.testing.assert_close(got[0].cpu(), expected)
    with pytest.raises(RuntimeError, match="out_dtype"):
        torch.mm(x, y, out_dtype=torch.float64)


def test_mixed_devices_are_refused():
    x = torch.ones(2, 3, 4, device="npu")
    mean, invstd = torch.batch_norm_stats(x, 1e-5)
    with pytest.raises(
        RuntimeError, match=r"Expected all tensors to be on the same device. Expected NPU tensor"
    ):
        torch.batch_norm_elemt(x, None, None, mean.cpu(), invstd, 1e-5)
    with pytest.raises(
        RuntimeError, match=r"Expected all tensors to be on the same device. Expected NPU tensor"
    ):
        torch.mm(x[0].half(), torch.ones(4, 2, dtype=torch.half), out_dtype=torch.float32)


def test_a_driver_with_batch_norm_in_one_call_gets_it():
    code = program(__file__, "_a_driver_with_batch_norm_in_one_call_gets_it")
    env = {**faulty_environment(), "NPU_FAULTY_TALLY": "1", "NPU_HOST_KERNELS": "all"}
    assert run_child(code, **env).split("\n")[:2] == [
        "True batch_norm.train batch_norm_grad.train",
        "False batch_norm.eval batch_norm_grad.eval",
    ]
    steps = run_child(code, **env, NPU_DISABLE_KIND="batch_norm,batch_norm_grad")
    assert "True batch_norm_apply.rstd batch_norm_grad_apply.train batch_norm_grad_reduce" in steps
