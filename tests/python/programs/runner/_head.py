# SPDX-License-Identifier: Apache-2.0
import ctypes, os, torch, torch_npu
from torch_npu import _C
torch.manual_seed(0)
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_calls.restype = ctypes.c_int64
faulty.npu_faulty_broken.restype = ctypes.c_char_p

def broken():
    torch.npu.synchronize()
    return faulty.npu_faulty_broken().decode()

def calls(overload, *rungs):
    return sum(row[rung] for row in _C._native_calls().get("aten::" + overload, []) for rung in rungs)

def off_by_one(tensor):
    # The same values at an address that is no multiple of 64.
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="npu")
    return room[1:].view(tensor.shape).copy_(tensor)
