# SPDX-License-Identifier: Apache-2.0
"""Scaled dot product attention takes CPU's road, so that results are CPU's bits."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.machines


def inputs(device, dtype=torch.float32, kv_heads=4, length=12):
    g = torch.Generator().manual_seed(0)
    make = lambda h: torch.randn(2, h, length, 8, generator=g).to(device, dtype).requires_grad_()  # noqa: E731
    return make(4), make(kv_heads), make(kv_heads)


def run(device, dtype=torch.float32, mask=None, **options):
    kv_heads = 2 if options.get("enable_gqa") else 4
    q, k, v = inputs(device, dtype, kv_heads)
    if mask is not None:
        mask = mask.to(device) if mask.dtype == torch.bool else mask.to(device, dtype)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    return [t.detach().cpu() for t in (out, *grads)]


TRIANGLE = torch.ones(12, 12).tril().bool()
OPTIONS = [
    {},
    {"is_causal": True},
    {"scale": 0.3},
    {"enable_gqa": True},
    {"mask": TRIANGLE},
    {"mask": torch.linspace(-1, 1, 144).reshape(12, 12)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ",".join(o) or "plain")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equal_to_cpu(dtype, options):
    if dtype is torch.bfloat16 and torch_npu._C._half_products()["bfloat16"][0]:
        pytest.skip("this CPU multiplies bfloat16 slowly: in float32 then (test_half_products.py)")
    for got, expected in zip(
        run("npu", dtype, **options), run("cpu", dtype, **options), strict=True
    ):
        assert got.equal(expected)


def test_the_fused_pair_is_what_runs():
    q, k, v = inputs("npu")
    assert torch._fused_sdp_choice(q, k, v) == SDPBackend.OVERRIDEABLE.value
    with torch.profiler.profile() as profile:
        F.scaled_dot_product_attention(q, k, v).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert "aten::_scaled_dot_product_fused_attention_overrideable" in names
    assert "aten::_scaled_dot_product_fused_attention_overrideable_backward" in names


def test_the_math_way_can_be_asked_for():
    q, k, v = inputs("npu")
    with sdpa_kernel(SDPBackend.MATH):
        assert torch._fused_sdp_choice(q, k, v) == SDPBackend.MATH.value
        F.scaled_dot_product_attention(q, k, v).sum().backward()


def test_dropout_draws_from_the_devices_generator():
    q, k, v = inputs("npu")
    draws = []
    for seed in (1, 1, 2):
        torch.npu.manual_seed(seed)
        before = torch.get_rng_state()
        draws.append(F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
        assert torch.get_rng_state().equal(before)
    assert draws[0].equal(draws[1]) and not draws[0].equal(draws[2])
    pair = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    with pytest.raises(NotImplementedError, match="dropout"):
        pair(q.double(), k.double(), v.double(), dropout_p=0.5)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        pair(q, k, v, dropout_p=1.5)


def test_multi_head_attention_module():
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(3, 5, 8)
    expected = model(x, x, x, need_weights=False)[0]
    y = x.npu()  # one tensor: the module projects three different ones in another way
    assert model.npu()(y, y, y, need_weights=False)[0].cpu().equal(expected)
