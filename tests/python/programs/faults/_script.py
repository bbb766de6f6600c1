# SPDX-License-Identifier: Apache-2.0
import ctypes, gc, os, sys
import torch, torch_npu
slot, use = sys.argv[1:]
kept = torch.arange(1000.0).npu()
event, event2 = (torch.npu.Event(enable_timing=True) for _ in range(2))
event.record(); event2.record()
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_calls.restype = faulty.npu_faulty_live.restype = ctypes.c_int64
faulty.npu_faulty_fired.restype = ctypes.c_int64

def live():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.npu.host_empty_cache()
    return [faulty.npu_faulty_live(kind) for kind in (b"memory", b"host", b"event")]

scope = dict(torch=torch, kept=kept, event=event, event2=event2)
eval(use, scope)  # what is made once and kept is made now
before = live()
assert faulty.npu_faulty_arm(f"{slot}:1".encode()) == 0, slot
try:
    eval(use, scope)
except Exception as error:
    text = str(error)
    assert isinstance(error, (RuntimeError, ValueError)), error
    print("raised", type(error).__name__)
else:
    print("quiet")
print("fired", faulty.npu_faulty_fired())
faulty.npu_faulty_arm(b"")
eval(use, scope)
assert live() == before, (live(), before)
assert torch.equal(kept.cpu(), torch.arange(1000.0))
x = torch.randn(8, 8, device="npu", requires_grad=True)
(x @ x).sum().backward()
assert x.grad.cpu().isfinite().all()
print("works")
