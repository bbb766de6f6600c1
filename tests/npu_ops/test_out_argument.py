# SPDX-License-Identifier: Apache-2.0
"""Results given as out=(...), the form that optimisers and inference servers for Ascend use."""

import subprocess
import sys

import cases_maths as maths
import pytest
import torch
import torch_npu
from table import DEVICE, rand


def dev(x):
    return x.float().to(DEVICE)


def adam_w(grad, **results):
    return torch_npu.npu_apply_adam_w(
        0.9, 0.99, 0.1, 0.01, 0.9, 0.99, 1e-8, dev(grad), None, False, False, **results
    )  # fmt: skip


def test_adam_w():
    var, m, v, grad = rand(5), rand(5), rand(5, low=0), rand(5)
    want = maths.adam_w(
        0.9, 0.99, 0.1, 0.01, 0.9, 0.99, 1e-8, grad, None, False, False,
        var=var.clone(), m=m.clone(), v=v.clone(),
    )  # fmt: skip
    given = [dev(x) for x in (var, m, v)]
    for found in (adam_w(grad, out=given), given):
        for got, expected in zip(found, want, strict=True):
            torch.testing.assert_close(got.cpu().double(), expected, rtol=1e-5, atol=1e-6)


def test_by_name_too():
    var, m, v, grad = rand(5), rand(5), rand(5, low=0), rand(5)
    one, other = ([dev(x) for x in (var, m, v)] for _ in range(2))
    adam_w(grad, out=tuple(one))
    adam_w(grad, var=other[0], m=other[1], v=other[2])
    assert not torch.equal(one[0], dev(var))  # it did something
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_compiled():
    var, m, v, grad = rand(5), rand(5), rand(5, low=0), rand(5)
    one, other = ([dev(x) for x in (var, m, v)] for _ in range(2))
    adam_w(grad, out=tuple(one))
    torch.compile(adam_w, backend="aot_eager")(grad, out=other)
    for got, expected in zip(other, one, strict=True):
        torch.testing.assert_close(got, expected)


def attention(**keywords):
    q = dev(rand(2, 4, 16))
    return torch_npu.npu_fused_infer_attention_score.out(
        query=q, key=q, value=q, num_heads=2, **keywords
    )


def softmax_of_products(q):
    heads = q.reshape(2, 4, 2, 8).transpose(1, 2)
    scores = heads @ heads.transpose(-1, -2)
    lse = torch.logsumexp(scores, -1, keepdim=True)
    return (torch.exp(scores - lse) @ heads).transpose(1, 2).reshape(2, 4, 16), lse


@pytest.mark.parametrize("operator", [torch_npu, torch.ops.npu])
def test_attention(operator):
    q = rand(2, 4, 16)
    want, lse = softmax_of_products(q)
    x, out, sums = dev(q), dev(torch.zeros(2, 4, 16)), dev(torch.zeros(2, 2, 4, 1))
    operator.npu_fused_infer_attention_score.out(
        x, x, x, num_heads=2, softmax_lse_flag=True, workspace=None, out=[out, sums]
    )
    torch.testing.assert_close(out.cpu().double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums.cpu().double(), lse, rtol=1e-5, atol=1e-5)
    # Without the flag programs give any small buffer: it is left alone.
    rest = torch.full((1,), 7.0, dtype=torch.float16, device=DEVICE)
    operator.npu_fused_infer_attention_score.out(x, x, x, num_heads=2, out=[out.zero_(), rest])
    torch.testing.assert_close(out.cpu().double(), want, rtol=1e-5, atol=1e-5)
    assert rest.item() == 7


def test_what_is_wrong_is_said():
    x = dev(rand(3))
    with pytest.raises(
        RuntimeError, match=r"out has 2 tensors; it takes 3: \(var, m, v\)[\s\S]*ERR01001"
    ):
        adam_w(rand(3), out=(x, x))
    lse = dev(torch.zeros(1))
    with pytest.raises(
        RuntimeError, match=r"attention_out has shape \[1, 4, 16\]; the result has \[2, 4, 16\]"
    ):
        attention(out=[dev(torch.zeros(1, 4, 16)), lse])
    with pytest.raises(
        RuntimeError, match=r"attention_out is torch.float16; the result is torch.float32"
    ):
        attention(out=[torch.zeros(2, 4, 16, dtype=torch.float16, device=DEVICE), lse])


def test_nothing_is_warned_about():
    code = "import torch_npu; torch_npu.npu_conv2d, torch_npu.npu_fused_infer_attention_score_v2"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0 and "Overriding" not in done.stderr, done.stderr
