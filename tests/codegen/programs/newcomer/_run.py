# SPDX-License-Identifier: Apache-2.0
import ctypes, os, sys
sys.path[:0] = sys.argv[1:]
import torch, torch_npu
assert torch_npu.__file__.startswith(tuple(sys.argv[1:]) or "/"), torch_npu.__file__
x = torch.linspace(-0.9, 0.9, 7)
y = x.npu().requires_grad_()
torch.testing.assert_close(torch.erfinv(y).detach().cpu(), torch.erfinv(x))
torch.erfinv(y).sum().backward()
torch.testing.assert_close(x.npu().erfinv_().cpu(), torch.erfinv(x))
torch.testing.assert_close(torch.erfinv(x.npu(), out=torch.empty(7, device="npu")).cpu(), torch.erfinv(x))
driver = ctypes.CDLL(os.environ["NPU_DRIVER"])
driver.npu_faulty_take_tally.restype = ctypes.c_char_p
print(driver.npu_faulty_take_tally().decode())
