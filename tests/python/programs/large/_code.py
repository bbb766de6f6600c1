# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
n = 2**31 + 4099
x = torch.ones(n, dtype=torch.int8, device="npu")
x[2**31], x[-1] = 7, 5
y = x + x
assert [y[i].item() for i in (0, 2**31 - 1, 2**31, 2**31 + 1, -1)] == [2, 2, 14, 2, 10]
del y
x[1:].add_(1)
assert [x[i].item() for i in (0, 1, 2**31, -1)] == [1, 2, 8, 6]
# In rows: as a whole PyTorch would make an int64 copy of it first.
rows = x[: 2**31].view(2**13, 2**18)
assert [rows[i].sum().item() for i in (0, -1)] == [2 * 2**18 - 1, 2 * 2**18]
tail = x[2**31 - 5 :]
assert tail.sum().item() == 2 * tail.numel() + 6 + 4
assert torch.equal(tail.cpu(), x[2**31 - 5 :].clone().cpu())
