# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.empty(1100 * 1024, dtype=torch.uint8, device="npu")
assert torch.npu.memory_allocated() == 1536 * 1024, torch.npu.memory_allocated()
assert torch.npu.memory_stats()["max_split_size"] == 64 * 2**20
assert torch.npu.get_per_process_memory_fraction() == 0.5
torch.npu.memory._set_allocator_settings("roundup_power2_divisions:1")
y = torch.empty(1100 * 1024, dtype=torch.uint8, device="npu")
assert torch.npu.memory_allocated() == (1536 + 1100) * 1024, torch.npu.memory_allocated()
try:
    torch.npu.memory._set_allocator_settings("page_size:3g")
except ValueError as error:
    assert "page_size" in str(error)
    print("fine")
torch.ones(3).pin_memory()
