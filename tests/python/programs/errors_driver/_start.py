# SPDX-License-Identifier: Apache-2.0
import ctypes, os, torch, torch_npu
assert torch.npu.device_count() >= 1  # loaded, nothing opened
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
def arm(what):
    assert faulty.npu_faulty_arm(what.encode()) == 0, what
def fails(kind, *words):
    try:
        act()
    except Exception as e:
        assert type(e) is kind, (type(e), e)
        for word in words:
            assert word in str(e), e
    else:
        raise SystemExit("no error")
