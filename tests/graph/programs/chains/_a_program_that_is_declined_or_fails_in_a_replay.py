# SPDX-License-Identifier: Apache-2.0
import ctypes
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_fired.restype = ctypes.c_int64

def body(x, state):
    state.mul_(0.5)
    return (torch.sin(x) + state) * x

x, kept = torch.randn(5, 64).npu(), torch.randn(5, 64).npu()
function = torch.compile(body, backend=torchair.get_npu_backend())
def once():
    state = kept.clone()
    return function(x, state), state
wanted = [t.clone() for t in once()]
once(), once()
assert total("programs") == 1 and total("replayed") > 0
state = kept.clone()
assert faulty.npu_faulty_arm(b"op.run:1:unsupported") == 0
got = function(x, state), state
assert faulty.npu_faulty_fired() == 1 and total("left") == 0
assert all(map(torch.equal, got, wanted))
state = kept.clone()
assert faulty.npu_faulty_arm(b"op.run:1") == 0
try:
    function(x, state)
except RuntimeError as error:
    assert "aten::sin" in str(error) and "aten::mul" in str(error), error
else:
    raise SystemExit("no error")
faulty.npu_faulty_arm(b"")
assert torch.equal(state, kept)
assert all(map(torch.equal, once(), wanted)) and total("recorded") == 1
