# SPDX-License-Identifier: Apache-2.0
"""Fused attention in half precision: right kernels pass in every form, wrong ones are found."""

import op_tools
import pytest
import torch
from op_tools.captures import replaying
from op_tools.captures.judging import judge_values
from op_tools.captures.replaying import Settings
from op_tools.run_op_from_data import cases
from optools_helpers import kernel, quiet
from torch.nn.functional import scaled_dot_product_attention as attention

FUSED = "_scaled_dot_product_fused_attention_overrideable"
FUSED_OP = getattr(torch.ops.aten, FUSED).default
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def tensors(device, dtype, heads=4, kv_heads=4, rows=48, columns=None, width=16):
    generator = torch.Generator().manual_seed(3)
    shapes = ((heads, rows), (kv_heads, columns or rows), (kv_heads, columns or rows))
    return [
        torch.randn(2, h, n, width, generator=generator).to(dtype).to(device).requires_grad_()
        for h, n in shapes
    ]


def hidden(rows, device):
    """A mask with an empty row and an empty column."""
    mask = torch.ones(rows, rows, dtype=torch.bool)
    mask[3], mask[:, 7] = False, False
    return mask.to(device)


FORMS = {
    "plain": lambda d, t: attention(*tensors(d, t)),
    "causal": lambda d, t: attention(*tensors(d, t), is_causal=True),
    "wide causal": lambda d, t: attention(*tensors(d, t, columns=80), is_causal=True),
    "mask": lambda d, t: attention(*tensors(d, t), hidden(48, d)),
    "bias": lambda d, t: attention(*tensors(d, t), torch.randn(2, 4, 48, 48).to(t).to(d)),
    "grouped": lambda d, t: attention(*tensors(d, t, kv_heads=2), enable_gqa=True),
    "grouped causal": lambda d, t: attention(
        *tensors(d, t, kv_heads=1), is_causal=True, enable_gqa=True
    ),
    "scaled": lambda d, t: attention(*tensors(d, t), scale=1.5),
    "long": lambda d, t: attention(
        *tensors(d, t, heads=1, kv_heads=1, rows=1100, width=8), is_causal=True
    ),
    # Called by its name: F.scaled_dot_product_attention may multiply matrices then.
    "dropout": lambda d, t: FUSED_OP(*tensors(d, t), None, 0.3, True)[0],
}


def judged(device, form, dtype):
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        out = FORMS[form](device, dtype)
        out.backward(torch.ones_like(out))
    return tool


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("form", FORMS)
def test_a_right_kernel_is_no_error(device, form, dtype):
    if device != "npu" and form == "dropout":
        pytest.skip("an operator of the backends'")
    torch.manual_seed(1)
    tool = judged(device, form, dtype)
    assert tool.findings() == []
    passed = {row["op"] for row in tool.table() if row["pass"]}
    assert len([op for op in passed if "_scaled_dot_product" in op]) == 2, tool.skips()


def host(*values):
    return [v.cpu() if isinstance(v, torch.Tensor) else v for v in values]


def fused(change):
    """A kernel of the backends' operator from what it does wrong: arguments of the cpu's."""

    def run(q, k, v, bias=None, dropout=0.0, causal=False, debug=False, *, scale=None):
        out, sums = change(*host(q, k, v, causal, bias), scale=scale)
        zero = torch.zeros((), dtype=torch.int64)
        made = out.to(q.device), sums.to(q.device)
        return (*made, None, None, q.shape[2], k.shape[2], zero, zero, None)

    return run


def plain(q, k, v, causal, bias, scale):
    return FLASH(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)


def last_key_lost(q, k, v, causal, bias, scale):
    _, sums = plain(q, k, v, causal, bias, scale)
    return plain(q, k[..., :-1, :], v[..., :-1, :], causal, bias, scale)[0], sums


def heads_not_grouped(q, k, v, causal, bias, scale):
    """Heads in turn, where each of the keys' serves neighbours."""
    group = q.shape[1] // k.shape[1]
    return plain(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), causal, bias, scale)


WRONG = {
    "mask forgotten": (
        lambda q, k, v, causal, bias, scale: plain(q, k, v, False, bias, scale),
        "causal",
    ),
    "mask forgotten, grouped": (
        lambda q, k, v, causal, bias, scale: plain(q, k, v, False, bias, scale),
        "grouped causal",
    ),
    "scale forgotten": (
        lambda q, k, v, causal, bias, scale: plain(q, k, v, causal, bias, 1.0),
        "plain",
    ),
    "bias forgotten": (
        lambda q, k, v, causal, bias, scale: plain(q, k, v, causal, None, scale),
        "bias",
    ),
    "last key lost": (last_key_lost, "plain"),
    "heads in another order": (heads_not_grouped, "grouped"),
    "mask forgotten, dropout": (
        lambda q, k, v, causal, bias, scale: plain(q, k, v, False, bias, scale),
        "dropout",
    ),
    "nothing dropped, twice as large": (
        lambda q, k, v, causal, bias, scale: (
            plain(q, k, v, causal, bias, scale)[0] * 4,
            plain(q, k, v, causal, bias, scale)[1],
        ),
        "dropout",
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_is_an_error(accelerator, fault, dtype):
    if accelerator != "npu":
        pytest.skip("another device has other operators for attention")
    change, form = WRONG[fault]
    tool = quiet(op_tools.OpAutoCompare())
    with kernel(FUSED, fused(change), accelerator), tool:
        FORMS[form](accelerator, dtype)
    assert {error["op"] for error in tool.errors()} == {"aten::" + FUSED}, tool.table()


def wrong_gradient(grad, q, k, v, bias, mask, out, sums, *rest, scale=None):
    causal = rest[5]
    found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        *host(grad, q, k, v, out, sums), 0.0, causal
    )
    made = [t.to(grad.device) for t in found]
    made[1][..., -1, :] = 0  # of the last key
    return (*made, None)


def test_a_wrong_gradient_is_an_error(accelerator):
    if accelerator != "npu":
        pytest.skip("another device has other operators for attention")
    tool = quiet(op_tools.OpAutoCompare())
    with kernel(FUSED + "_backward", wrong_gradient, accelerator), tool:
        out = FORMS["grouped causal"](accelerator, torch.bfloat16)
        out.backward(torch.ones_like(out))
    (error,) = tool.errors()
    assert error["op"] == f"aten::{FUSED}_backward"
    assert error["results"][error["worst"]]["result"] == "output[1]"


@pytest.mark.parametrize("form", ["causal", "grouped causal", "bias"])
def test_a_capture_is_replayed_on_the_cpu(device, form):
    capture = quiet(op_tools.OpCapture())
    with capture:
        out = FORMS[form](device, torch.bfloat16)
        out.backward(torch.ones_like(out))
    outcomes = {}
    for where, case, why in cases(capture.folder, "cpu"):
        assert case is not None, why
        if "_scaled_dot_product" in case.name:
            made = replaying.replay(where, case, Settings("cpu"))
            outcomes[case.name] = made.outcome, made.notes
            assert made.e is not None and made.captured_e is not None, made.notes
    assert len(outcomes) == 2
    assert {outcome for outcome, _ in outcomes.values()} == {"pass"}, outcomes


def by_cudnn(half: torch.dtype) -> list[tuple[str, list, list]]:
    """Calls of cuDNN's operator and its gradient, with what the cpu's kernel gives and the shape
    of logsumexp that cuDNN has: the cpu has no kernel of that name."""
    q, k, v = (t.detach() for t in tensors("cpu", half))
    out, sums = FLASH(q, k, v, 0.0, True)
    grad = torch.ones_like(out)
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    grads = backward(grad, q, k, v, out, sums, 0.0, True)
    sums, zero = sums.unsqueeze(-1), torch.zeros((), dtype=torch.int64)
    rows = [None, None, q.shape[2], k.shape[2]]
    name = "aten::_scaled_dot_product_cudnn_attention"
    return [
        (name, [q, k, v, None, True, 0.0, True, False, None], [out, sums, *rows, zero, zero, None]),
        (
            name + "_backward",
            [grad, q, k, v, out, sums, zero, zero, None, *rows, 0.0, True, None],
            list(grads),
        ),
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_cudnns_attention_is_judged_by_its_definition(dtype):
    for name, args, results in by_cudnn(dtype):
        found = judge_values(name, args, results, {}, False)
        assert found["verdict"] == "pass", found
        results[0] = results[0] * 1.5
        assert judge_values(name, args, results, {}, False)["verdict"] == "error"
