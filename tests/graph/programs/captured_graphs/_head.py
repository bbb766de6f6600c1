# SPDX-License-Identifier: Apache-2.0
import ctypes, gc, os, sys, warnings, torch, torch_npu, torchair
from torchair import _compiler
driver = ctypes.CDLL(os.environ["NPU_DRIVER"])

def graphs():
    out = (ctypes.c_uint64 * 3)()
    driver.npu_discrete_graphs(out)
    return tuple(out)  # recorded, launched, updated

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

def compiled(function):
    return torch.compile(function, backend=torchair.get_npu_backend())
