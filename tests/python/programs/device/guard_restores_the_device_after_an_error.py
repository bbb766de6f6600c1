# SPDX-License-Identifier: Apache-2.0
# NPU_HOST_DEVICES=4
import torch, torch_npu
torch.empty(1, device="npu:0")
try:
    with torch.npu.device(2):
        assert torch.npu.current_device() == 2
        raise KeyError
except KeyError:
    pass
assert torch.npu.current_device() == 0
