# SPDX-License-Identifier: Apache-2.0
"""Quantised operators that write their arguments, and the arguments that they refuse."""

import cases_qproducts  # noqa: F401
import cases_quantisers  # noqa: F401
import pytest
import torch
import torch_npu
from table import CASES, DEVICE, arguments, plain

IN_PLACE = {
    f"{name}_" for name in ("npu_add_quant_matmul", "npu_add_quant_gmm", "npu_batch_gather_matmul")
}


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op.removesuffix("_") + "_" in IN_PLACE], ids=str
)
def test_only_the_form_with_an_underscore_writes(case):
    args, kwargs = arguments(case, torch.float32)
    before = args[0].clone()
    result = getattr(torch_npu, case.op)(*args, **kwargs)
    assert (result is args[0] or result.data_ptr() == args[0].data_ptr()) == (case.op in IN_PLACE)
    args_again, kwargs_again = plain(case)
    want = case.reference(*args_again, **kwargs_again)
    assert not torch.equal(want, args_again[0]), "the case changes nothing"
    expected = want if case.op in IN_PLACE else before.cpu().double()
    torch.testing.assert_close(args[0].cpu().double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", [c for c in CASES if c.op.startswith("_quantize_per_")], ids=str)
def test_quantize_writes_result(case):
    args, kwargs = arguments(case, torch.float32)
    packet = getattr(torch.ops.npu, case.op.partition(".")[0])
    packet.out(*args, **kwargs)
    plain_args, plain_kwargs = plain(case)
    assert torch.equal(kwargs["result"].cpu(), case.reference(*plain_args, **plain_kwargs))


def test_gather_stats_updates_running_statistics():
    case = next(c for c in CASES if c.op == "batch_norm_gather_stats_update")
    args, _ = arguments(case, torch.float32)
    _, total, squares, mean, var, momentum, _, counts = (
        a.cpu().double() if isinstance(a, torch.Tensor) else a for a in args
    )
    torch_npu.batch_norm_gather_stats_update(*args)
    n = counts.sum()
    biased = squares.sum(0) / n - (total.sum(0) / n) ** 2
    for got, old, new in ((args[3], mean, total.sum(0) / n), (args[4], var, biased * n / (n - 1))):
        want = (1 - momentum) * old + momentum * new
        torch.testing.assert_close(got.cpu().double(), want, rtol=1e-5, atol=1e-5)


def _x(*size):
    return torch.ones(*size, device=DEVICE)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: torch_npu.npu_dynamic_mx_quant(_x(2, 64), axis=2), "Parameter axis is out of input dimension range ["),
        (lambda: torch_npu.npu_dynamic_mx_quant(_x(2, 64), block_size=33), "Parameter block_size must be divisible by 32 and no greater than 1024, greater than 0"),
        (lambda: torch_npu.npu_dynamic_mx_quant(_x(2, 64), scale_alg=3), "scale_alg"),
        (lambda: torch_npu.npu_dynamic_mx_quant(_x(2, 63)), "the last dim of input must be divisible by 2"),
        (lambda: torch_npu.npu_grouped_dynamic_mx_quant(_x(2, 2, 64), torch.tensor([2], device=DEVICE)), "Input x must be 2-dimensional, got dimNum "),
        (lambda: torch_npu.npu_grouped_dynamic_mx_quant(_x(2, 64), torch.tensor([2], device=DEVICE), blocksize=64), "Parameter blocksize only supports 32,  got "),
        (lambda: torch_npu._npu_rms_norm_backward_quant(_x(2, 4), _x(2, 4), _x(2, 1), _x(4), _x(1), quant_mode="dynamic"), "quant_mode"),
    ],
)  # fmt: skip
def test_refused(call, text):
    with pytest.raises(RuntimeError) as caught:
        call()
    assert text in str(caught.value) and "ERR0100" in str(caught.value)


def test_not_supported():
    x = torch.ones(2, 64, device=DEVICE)
    with pytest.raises(NotImplementedError, match="ERR01007"):
        torch_npu.npu_dynamic_dual_level_mx_quant(x, smooth_scale=x[0])
    with pytest.raises(NotImplementedError, match="ERR01007"):
        torch_npu.npu_rotate_quant(x, torch.eye(32, device=DEVICE), transpose_y=True)
