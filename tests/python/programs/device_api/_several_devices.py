# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
assert torch.npu.device_count() == 3
with torch.npu.device(2):
  assert torch.npu.current_device() == 2 and torch.zeros(1).npu().device.index == 2
  with torch.npu.device_of(torch.zeros(1, device='npu:1')):
    assert torch.npu.current_device() == 1
assert torch.npu.current_device() == 0
torch.npu.set_device('npu:1')
assert torch.zeros(1, device='npu').device.index == 1
assert torch.accelerator.current_device_index() == 1
a = torch.ones(2, device='npu:0'); b = a.npu(2)
assert b.device.index == 2 and b.tolist() == [1, 1]
assert torch.npu.current_stream(2).device_index == 2
