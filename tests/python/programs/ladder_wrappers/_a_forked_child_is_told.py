# SPDX-License-Identifier: Apache-2.0
import os, torch, torch_npu
x = torch.ones(4, 4, device="npu")
torch.mm(x, x)
pid = os.fork()
if pid == 0:
    try:
        torch.mm(x, x)
        os._exit(1)
    except RuntimeError as error:
        os._exit(0 if "fork" in str(error) else 2)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
