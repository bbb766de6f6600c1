# SPDX-License-Identifier: Apache-2.0
import ctypes, os
import torch, torch_npu, torchair
from torch.fx.experimental.proxy_tensor import make_fx

faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_fired.restype = ctypes.c_int64

def fails(what, call, *words):
    before = faulty.npu_faulty_fired()
    assert faulty.npu_faulty_arm(what.encode()) == 0, what
    try:
        call()
        torch.npu.synchronize()
    except RuntimeError as error:
        for word in words:
            assert word in str(error), error
    else:
        raise SystemExit("no error")
    assert faulty.npu_faulty_fired() == before + 1
    faulty.npu_faulty_arm(b"")

def body(x, state):
    y = torch.sin(x)
    state.mul_(0.5)
    return torch.exp(y) + state

def judge(got, x, state):
    wanted = torch.exp(torch.sin(x.double().cpu())) + state.double().cpu() * 0.5
    torch.testing.assert_close(got.double().cpu(), wanted, rtol=1e-6, atol=1e-6)

x, state = (torch.randn(64, 8).npu() for _ in range(2))
run = torchair.get_compiler()(make_fx(body)(x, state.clone()), [x, state])
counts = run.replayer.counts

def works(times=3):
    for _ in range(times):
        (got,) = run([x, state.clone()])
        judge(got, x, state)
    assert torch.ones(3, device="npu").cumsum(0).tolist() == [1, 2, 3]

works()
assert counts()["replayed"] == 2 and counts()["islands"] == 0 and counts()["frames"] == 4, counts()
