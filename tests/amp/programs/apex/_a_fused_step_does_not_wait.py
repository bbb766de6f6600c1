# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from apex import amp
from apex.optimizers import NpuFusedSGD
model = torch.nn.Linear(8, 8).npu()
model, optimizer = amp.initialize(model, NpuFusedSGD(model.parameters(), lr=0.1), opt_level="O2",
                                  verbosity=0, dynamic_init_scale=4.0)
x = torch.randn(16, 8, device="npu")
for step in range(3):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    mark = torch.npu.Event()
    mark.record()
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert step == 0 or not mark.query(), "the step waited for the device"
torch.npu.synchronize()
assert model.weight.isfinite().all() and amp.state_dict()["loss_scaler0"]["unskipped"] == 3
