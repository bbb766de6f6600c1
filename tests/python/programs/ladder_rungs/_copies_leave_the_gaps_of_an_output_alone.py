# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
wide = torch.full((3, 8), 7.0, device="npu")
out = wide[:, ::2]
x = torch.ones(3, 4, device="npu")
torch.fmax(x, x, out=out)
assert wide[:, 1::2].cpu().eq(7).all() and out.cpu().eq(1).all()
part = torch.arange(1000.0, device="npu")[10:20]
assert torch.fmax(part, part).cpu().tolist() == list(range(10, 20))
part.erfinv_()
