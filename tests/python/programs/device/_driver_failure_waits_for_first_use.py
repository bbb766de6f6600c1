# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
assert torch.ones(2).sum() == 2
assert torch.npu.device_count() == 0 and not torch.npu.is_available()
for _ in range(2):
    try:
        torch.empty(1, device="npu")
    except RuntimeError as e:
        assert "nonsense" in str(e), e
        print("raised")
