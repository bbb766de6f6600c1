# SPDX-License-Identifier: Apache-2.0
import op_tools, torch, torch_npu
from op_tools import captures
for device in range(2):
    torch.npu.set_device(device)
    torch.npu.manual_seed(100 + device)
torch.npu.set_device(0)
x = torch.empty(5, device="npu:1")
states = {torch.npu.get_rng_state(d).numpy().tobytes(): d for d in (0, 1)}
tool = op_tools.OpCapture()
with tool:
    x.uniform_()
    torch.rand(3, device="npu:1")
found = captures.open(tool.folder)
record = next(r for r in found if "uniform" in r.op)
print("device", states.get(record.rng.load().numpy().tobytes()))
