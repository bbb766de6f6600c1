# SPDX-License-Identifier: Apache-2.0
import op_tools, torch, torch_npu
xs = [torch.randn(700, 700).to(f"npu:{i}") for i in (0, 1)]
torch.npu.set_device(0)
for x in xs:
    (x @ x).cpu()
for index, x in enumerate(xs):
    tool = op_tools.OpTimeMeasure()
    tool.report = lambda: None
    with tool:
        for _ in range(5):
            y = x @ x
    torch.npu.synchronize(index)
    took = [s.device_ns for s in tool.samples() if s.op == "aten::mm"]
    print(sorted(took)[2])
