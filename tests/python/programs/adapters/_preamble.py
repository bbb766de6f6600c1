# SPDX-License-Identifier: Apache-2.0
import warnings, torch, torch_npu
from torch_npu import _C
torch.manual_seed(0)

def calls(overload):
    rows = _C._native_calls().get("aten::" + overload, [])
    return tuple(sum(row[rung] for row in rows) for rung in (1, 2, 3))

def ran(overload, fn, rung=1, times=1):
    before = calls(overload)
    out = fn()
    after = calls(overload)
    assert after[rung - 1] - before[rung - 1] == times, (overload, before, after)
    return out

def close(got, want):
    assert got.device.type == "npu" and got.dtype == want.dtype, (got, want)
    assert got.shape == want.shape and got.stride() == want.stride(), (got.stride(), want.stride())
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)

def raises_same(host, here):
    try:
        host()
    except Exception as e:
        want = e
    else:
        raise AssertionError("CPU does not raise")
    try:
        here()
    except type(want) as e:
        return str(want), str(e)
    raise AssertionError("npu does not raise")
