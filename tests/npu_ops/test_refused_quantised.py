# SPDX-License-Identifier: Apache-2.0
"""Quantisers and quantised products: wrong arguments are named, and nothing is written.

Also what the table of cases cannot say of them: modes without an oracle of Ascend's, gradients of keyword
arguments, numbers that blocks cannot hold.
"""

import math

import pytest
import torch
import torch_npu
from table import DEVICE, rand
from torch_npu.ops import _lowp as lowp

E4M3, E5M2, HIF8, E2M1 = 292, 291, 290, 296


def floats(*size, dtype=torch.float32):
    return rand(*size).to(dtype).to(DEVICE)


def zeros(*size, dtype=torch.uint8):
    return torch.zeros(size, dtype=dtype, device=DEVICE)


def ints(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype, device=DEVICE)


def fp8(*size):
    return zeros(*size, dtype=torch.float8_e4m3fn)


X, EYE = floats(4, 64), torch.eye(64, device=DEVICE)
LINEAR = floats(3, 4), floats(6, 4), ints(1, 2, 5)
REFUSED = [
    (lambda: torch_npu.npu_dynamic_mx_quant(X, dst_type=1), "dst_type is 1; allowed: float8_e4m3fn"),
    (lambda: torch_npu.npu_dynamic_mx_quant(X.int()), "input is torch.int32"),
    (lambda: torch_npu.npu_dynamic_mx_quant(X, round_mode="up"), "round_mode is up"),
    (lambda: torch_npu.npu_dynamic_mx_quant(X, dst_type=E4M3, round_mode="floor"), "round_mode is floor"),
    (lambda: torch_npu.npu_dynamic_mx_quant(X, dst_type_max=-1.0), "dst_type_max is -1.0"),
    (lambda: torch_npu.npu_dynamic_mx_quant_with_dual_axis(X[0]), "1 dimensions; at least 2"),
    (lambda: torch_npu.npu_grouped_dynamic_mx_quant(X, ints(3, 1)), "group_index is [3, 1]; it holds ends"),
    (lambda: torch_npu.npu_grouped_dynamic_mx_quant(X, ints(3, 5)), "ends at 5, but there are 4 rows"),
    (lambda: torch_npu.npu_grouped_dynamic_mx_quant(X, X[0]), "group_index is torch.float32"),
    (lambda: torch_npu.npu_grouped_dynamic_mx_quant(X, ints()), "group_index has shape [0]; allowed: [groups], at least one"),
    (lambda: torch_npu.npu_anti_mx_quant(fp8(4, 64), zeros(4, 2, 2)), "mxscale has shape [4, 2, 2]; allowed: [4, 1, 2]"),
    (lambda: torch_npu.npu_anti_mx_quant(fp8(4, 64), X), "mxscale is torch.float32"),
    (lambda: torch_npu.npu_anti_mx_quant(zeros(4, 64), zeros(4, 1, 2), src_type=HIF8), "the dtype of x is 290"),
    (lambda: torch_npu.npu_anti_mx_quant(fp8(4, 64), zeros(4, 1, 2), dst_type=1), "dst_type is 1"),
    (lambda: torch_npu.npu_swiglu_mx_quant(X[:, :63]), "dimension -1 must be there and divisible by 2"),
    (lambda: torch_npu.npu_swiglu_mx_quant(X, axis=0, group_index=ints(4), activate_dim=0), "activate_dim is 0"),
    (lambda: torch_npu.npu_swiglu_mx_quant(X, group_mode=2), "group_mode is 2; allowed: 0, 1"),
    (lambda: torch_npu.npu_swiglu_mx_quant(floats(2, 4, 64), axis=0), "axis is 0; allowed: -1, -2"),
    (lambda: torch.ops.npu._npu_swiglu_backward_mx_quant_with_dual_axis(X, X), "y_grad has shape [4, 64]; allowed: [4, 32]"),
    (lambda: torch.ops.npu._npu_swiglu_backward_mx_quant_with_dual_axis(X[:, :32], X[:, :16]), "multiple of 64"),
    (lambda: torch_npu.npu_grouped_dynamic_block_quant(X, ints(4), col_block_size=0), "col_block_size is 0"),
    (lambda: torch_npu.npu_grouped_dynamic_block_quant(X, ints(-1, 2), group_list_type=1), "no count may be negative"),
    (lambda: torch_npu.npu_grouped_dynamic_block_quant(X, ints(4), dst_type=E2M1), "dst_type is 296"),
    (lambda: torch_npu.npu_rotate_quant(X, floats(3, 3)), "rotation has shape [3, 3]"),
    (lambda: torch_npu.npu_rotate_quant(X, EYE, dst_dtype=6), "dst_dtype is 6"),
    (lambda: torch_npu.npu_rotate_quant(X, EYE, axis=0), "axis is 0; allowed: -1"),
    (lambda: torch_npu.npu_kronecker_quant(floats(2, 3, 8), floats(2, 2), floats(8, 8)), "kronecker_p1 has shape [2, 2]; allowed: [3, 3]"),
    (lambda: torch_npu.npu_kronecker_quant(floats(2, 3, 7), floats(3, 3), floats(7, 7)), "must be divded by 8"),
    (lambda: torch_npu.npu_kronecker_quant(floats(2, 3, 8), floats(3, 3), floats(8, 8), 0.0), "clip_ratio is 0.0"),
    (lambda: torch_npu.npu_quant_max(X, floats(2)), "scale has shape [2]; allowed: [1]"),
    (lambda: torch_npu.npu_quant_max(X, floats(1), group_list=ints(1, 4)), "scale has shape [1]; allowed: [2]"),
    (lambda: torch_npu.npu_ifmr(X, X[0, :1], X[0, :1], X[0], 0.9, 0.9, 0.7, 0.7, 0.1, False), "the range is empty"),
    (lambda: torch_npu.npu_ifmr(X, X, X[0, :1], X[0], 0.9, 0.9, 0.7, 1.3, 0.1, False), "data_min has shape [4, 64]"),
    (lambda: torch_npu.npu_swiglu_group_quant(X, quant_mode=4), "quant_mode is 4"),
    (lambda: torch_npu.npu_swiglu_group_quant(X, quant_mode=2), "scale must be given with quant_mode 2"),
    (lambda: torch_npu.npu_swiglu_group_quant(X, weight=floats(3)), "weight has shape [3]; x has 4 rows"),
    (lambda: torch_npu.npu_swiglu_group_quant(X, dst_type=HIF8), "dst_type is 290"),
    (lambda: torch_npu.npu_swiglu_group_quant_backward(X, X), "grad_y has shape [4, 64]; allowed: [4, 32]"),
    (lambda: torch_npu.npu_swiglu_group_quant_backward(X[:, :32], X, weight=floats(4)), "y_origin must be given"),
    (lambda: torch_npu.npu_rms_norm_quant_v2(X, X[0], floats(3)), "scale has shape [3]; allowed numbers of elements: 1, 64"),
    (lambda: torch_npu.npu_rms_norm_dynamic_mx_quant(X, floats(3)), "gamma has shape [3]"),
    (lambda: torch_npu.npu_add_rms_norm_dynamic_mx_quant(X, X[:2], X[0]), "x1 has shape [4, 64] and x2 [2, 64]"),
    (lambda: torch_npu.npu_normalize_batch(floats(2, 3, 4), ints(5, 1)), "seq_len is [5, 1]; allowed: 0 to 4"),
    (lambda: torch_npu.npu_normalize_batch(floats(2, 3, 4), ints(4, 1), 2), "normalize_type is 2"),
    (lambda: torch_npu.npu_dual_level_quant_matmul(zeros(2, 32), zeros(3, 32), floats(2, 2), floats(1, 3), zeros(2, 1, 2), zeros(3, 1, 2)), "x1_level0_scale has shape [2, 2]; allowed: [2, 1]"),
    (lambda: torch_npu.npu_quant_matmul_dequant(X, zeros(5, 63, dtype=torch.int8), floats(5)), "quantized_weight has shape [5, 63]; allowed: [5, 64]"),
    (lambda: torch_npu.npu_quant_matmul_dequant(X, zeros(5, 64, dtype=torch.int8), floats(5), quant_mode="pertensor"), "x_scale must be given"),
    (lambda: torch_npu.npu_quant_grouped_matmul_dequant(X, zeros(2, 5, 64, dtype=torch.int8), floats(2, 5), ints(3, 9)), "ends at 9, but there are 4 rows"),
    (lambda: torch_npu.npu_quant_matmul_gelu(X, X, floats(1), floats(1)), "x1 is torch.float32"),
    (lambda: torch_npu.npu_quant_matmul_gelu(zeros(2, 3, dtype=torch.int8), zeros(3, 4, dtype=torch.int8), floats(2), floats(4), approximate="no"), "approximate is no"),
    (lambda: torch_npu.npu_quant_matmul_reduce_sum(zeros(2, 2, 3, dtype=torch.int8), zeros(2, 3, 4, dtype=torch.int8)), "x1_scale must be given"),
    (lambda: torch_npu.npu_transpose_quant_batchmatmul(fp8(4, 2, 8), fp8(2, 8, 3), 15, perm_x1=[0, 1, 2], x2_scale=floats(3)), "perm_x1 is [0, 1, 2]; allowed: [1, 0, 2]"),
    (lambda: torch_npu.npu_transpose_quant_batchmatmul(fp8(4, 2, 8), fp8(2, 8, 3), 15, x2_scale=floats(3), batch_split_factor=3), "batch_split_factor is 3"),
    (lambda: torch_npu.npu_fused_linear_online_max_sum(*LINEAR, 0, 6), "vocab_end_index 6"),
    (lambda: torch_npu.npu_fused_linear_online_max_sum(LINEAR[0], LINEAR[1], X[0, :3], 0, 5), "target is torch.float32"),
    (lambda: torch_npu.npu_fused_cross_entropy_loss_with_max_sum(X[0], X[0], X[0], label_smoothing=0.1), "label_smoothing is 0.1; allowed: 0"),
    (lambda: torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(X[0, :3], *LINEAR[:2], zeros(1), LINEAR[2]), "give softmax, or logits_max and sum_exp_logits"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda i: REFUSED[i][1])
def test_refused(number):
    call, text = REFUSED[number]
    with pytest.raises(RuntimeError) as caught:
        call()
    assert text in str(caught.value) and "ERR0100" in str(caught.value)


WRITERS = [
    (torch_npu.npu_add_quant_matmul_, (fp8(64, 4), fp8(64, 3), floats(2)), {"x1_scale": floats(1)}, "x2_scale has shape [2]"),
    (torch_npu.npu_add_quant_matmul_, (fp8(63, 4), fp8(64, 3), floats(1)), {}, "x1 has shape [63, 4]; allowed: [64, 4]"),
    (torch_npu.npu_add_quant_matmul_, (fp8(64, 4), fp8(64, 3), zeros(1, 3, 2)), {}, "x1_scale must be given"),
    (torch_npu.npu_batch_gather_matmul_, (floats(4, 5), floats(2, 1, 3, 2), ints(0, 1, 0, 1)), {"weight_a": floats(2, 1, 2, 6)}, "x has shape [4, 5]; allowed: [4, 6]"),
    (torch_npu.npu_batch_gather_matmul_, (floats(4, 2), floats(2, 1, 3, 2), ints(0, 1, 0, 1)), {"layer_idx": 1}, "layer_idx is 1"),
    (torch_npu.npu_batch_gather_matmul_, (floats(4, 2), floats(2, 1, 3, 2), ints(0, 1, 0, 1)), {"y_offset": 1}, "y_offset is 1"),
]  # fmt: skip


@pytest.mark.parametrize("call, args, kwargs, text", WRITERS, ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_nothing_is_written_on_refusal(call, args, kwargs, text):
    out = floats(4, 3)
    before = out.clone()
    with pytest.raises(RuntimeError) as caught:
        call(out, *args, **kwargs)
    assert text in str(caught.value) and torch.equal(out, before)


def test_rows_outside_the_tokens_are_refused():
    x, w = zeros(3, 8, dtype=torch.int8), zeros(1, 8, 4, dtype=torch.int8)
    rest = {"scale": floats(1, 4), "pertoken_scale": floats(3), "logit": floats(3)}
    with pytest.raises(RuntimeError, match=r"row_index is \[0, 3, 1\]; allowed: 0 to 2"):
        torch_npu.npu_grouped_matmul_finalize_routing(
            x, w, ints(3), row_index=ints(0, 3, 1), output_bs=3, **rest
        )


def test_adapters_outside_the_list_leave_their_rows():
    x, b, y = floats(3, 2), floats(2, 1, 4, 2), floats(3, 4)
    got = torch_npu.npu_batch_gather_matmul(y, x, b, ints(2, -1, 1), scale=1.0)
    assert torch.equal(got[:2], y[:2])
    want = y[2].cpu() + b[1, 0].cpu() @ x[2].cpu()
    torch.testing.assert_close(got[2].cpu(), want)


@pytest.mark.parametrize("round_scale", [False, True])
def test_swiglu_group_quant_by_blocks(round_scale):
    """quant_mode 0: 128 columns share a scale, the largest number over 448 or the next power of two."""
    x = floats(3, 600)
    y, scale, _ = torch_npu.npu_swiglu_group_quant(x, dst_type=E4M3, round_scale=round_scale)
    left, right = x.cpu().double().chunk(2, -1)
    v = left * torch.sigmoid(left) * right
    assert y.dtype == torch.float8_e4m3fn and scale.shape == (3, 3)
    for b in range(3):
        part = slice(b * 128, b * 128 + 128)
        want = v[:, part].abs().amax(1).clamp(min=1e-4) / 448
        want = 2 ** torch.ceil(torch.log2(want)) if round_scale else want
        torch.testing.assert_close(scale[:, b].cpu().double(), want, rtol=1e-6, atol=0)
        back = y[:, part].cpu().double() * want[:, None]
        torch.testing.assert_close(back, v[:, part], rtol=2**-4, atol=2**-8)


def test_swiglu_group_quant_by_shared_exponents():
    x = floats(3, 200)
    y, scale, _ = torch_npu.npu_swiglu_group_quant(x, dst_type=E5M2, quant_mode=1)
    y2, scale2 = torch_npu.npu_swiglu_mx_quant(x, activate_left=True, dst_type=E5M2)
    assert torch.equal(y.float(), y2.float()) and torch.equal(scale, scale2)


def test_gradient_of_the_weight_of_swiglu():
    """y_origin's own gradient: of silu(x0) x1, without the weight."""
    x, weight = floats(3, 8).requires_grad_(), floats(3).requires_grad_()
    _, _, origin = torch_npu.npu_swiglu_group_quant(x, weight=weight, output_origin=True)
    grad = floats(3, 4)
    dx, dw = torch.autograd.grad(origin, (x, weight), grad)
    left, right = (t.detach().cpu().double() for t in x.chunk(2, -1))
    plain = left * torch.sigmoid(left) * right
    torch.testing.assert_close(
        dw.cpu().double(), (grad.cpu() * plain).sum(-1), rtol=1e-5, atol=1e-5
    )
    assert dx.abs().sum() > 0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_block_with_inf_or_nan_has_byte_255(bad):
    x = floats(1, 64)
    x[0, 3] = bad
    y, scale = torch_npu.npu_dynamic_mx_quant(x, dst_type=E4M3)
    assert scale.flatten().tolist()[0] == 255 and scale.flatten().tolist()[1] < 255
    back = torch_npu.npu_anti_mx_quant(y, scale, dst_type=6)
    assert back[0, :32].isnan().all() and back[0, 32:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_are_rounded_before_they_are_quantised(dtype):
    x, gamma = floats(5, 96, dtype=dtype), floats(96, dtype=dtype)
    y, scale, rstd = torch_npu.npu_rms_norm_dynamic_mx_quant(x, gamma, dst_type=E5M2)
    norm, want_rstd = torch_npu.npu_rms_norm(x, gamma)
    want, want_scale = lowp.mx_quantise(norm, -1, torch.float8_e5m2)
    assert torch.equal(y.float(), want.float()) and torch.equal(scale, want_scale)
    torch.testing.assert_close(rstd, want_rstd)


def test_bits_past_the_last_row_are_ones():
    _, _, _, mask, place, _ = torch_npu.npu_fused_linear_online_max_sum(
        floats(3, 4), floats(6, 4), ints(10, 3, 15), 10, 15
    )
    assert mask.tolist() == [0b11111010] and place.tolist() == [0, 0, 5]
