# SPDX-License-Identifier: Apache-2.0
import os, torch, torch_npu
x = torch.ones(1000, device="npu")
child = os.fork()
if child == 0:
    status = 1
    try:
        torch.ones(3, device="npu")
    except RuntimeError as error:
        status = 0 if "forked subprocess" in str(error) else 2
    del x
    cpu = [torch.ones(1000) for _ in range(100)]
    del cpu
    os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.sum().item())
