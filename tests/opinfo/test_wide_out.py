# SPDX-License-Identifier: Apache-2.0
"""out= of another dtype than the computation's: results are rounded to the computation's first, as on the CPU."""

import itertools

import torch
import torch_npu  # noqa: F401
from torch.testing._internal import common_methods_invocations as opinfo


def _moved(value, dtype, device):
    """Large enough that digits a half does not have show."""
    if isinstance(value, torch.Tensor):
        return (value.detach() * 60 if value.dtype == dtype else value.detach()).to(device)
    return value


def _into_float(info, sample, dtype, device):
    out = torch.empty(0, dtype=torch.float32, device=device)
    args = [_moved(value, dtype, device) for value in (sample.input, *sample.args)]
    info.op(*args, **sample.kwargs, out=out)
    return out.cpu()


def _is_rounded(values, dtype):
    return torch.equal(values.to(dtype).float().nan_to_num(7), values.nan_to_num(7))


def _judge(info, dtype):
    """Samples judged, and how many of them have digits that the CPU's result has not, or differ."""
    judged = wrong = 0
    for sample in itertools.islice(info.sample_inputs("cpu", dtype), 3):
        try:
            want = _into_float(info, sample, dtype, "cpu")
        except (RuntimeError, TypeError):
            continue  # not for this operator
        got = _into_float(info, sample, dtype, "npu")
        judged += 1
        wrong += _is_rounded(want, dtype) and not _is_rounded(got, dtype)
        wrong += not torch.allclose(got, want, rtol=2e-2, atol=1e-2, equal_nan=True)
    return judged, wrong


def test_half_inputs_with_a_wider_out_are_rounded_first():
    total, bad = 0, []
    for info in opinfo.op_db:
        if isinstance(info, (opinfo.BinaryUfuncInfo, opinfo.UnaryUfuncInfo)) and info.supports_out:
            for dtype in {torch.float16, torch.bfloat16} & set(info.dtypes):
                judged, wrong = _judge(info, dtype)
                total += judged
                bad += [(info.name, dtype)] if wrong else []
    assert total > 200, total
    assert not bad, bad


def test_half_sum_overflows_as_on_the_cpu():
    x, y = torch.full((3,), 65472.0).half(), torch.full((3,), 512.0).half()
    want = torch.add(x, y, out=torch.empty(3))
    got = torch.add(x.npu(), y.npu(), out=torch.empty(3, device="npu"))
    assert want.isinf().all() and got.cpu().equal(want)
