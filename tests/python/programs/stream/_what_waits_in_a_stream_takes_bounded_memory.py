# SPDX-License-Identifier: Apache-2.0
import gc, resource, torch, torch_npu
tensors = [torch.zeros(1, device="npu") for _ in range(2000)]
def queue(n):
    for _ in range(n):
        torch._foreach_add_(tensors, 1.0)
queue(20)
torch.npu.synchronize()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
queue(400)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
torch.npu.synchronize()
assert tensors[0].item() == tensors[-1].item() == 420
