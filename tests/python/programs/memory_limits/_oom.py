# SPDX-License-Identifier: Apache-2.0
import re, torch, torch_npu
assert torch.npu.OutOfMemoryError is torch.OutOfMemoryError
kept = torch.ones(40 * 2**20, dtype=torch.uint8, device="npu")
try:
    torch.empty(30 * 2**20, dtype=torch.uint8, device="npu")
    raise SystemExit("64 MiB were not enough to hold 70")
except torch.OutOfMemoryError as error:
    text = str(error)
sizes = "[0-9.]+ (?:GiB|MiB|KiB|bytes)"
want = (
    f"NPU out of memory. Tried to allocate 30.00 MiB \\(NPU 0; 64.00 MiB total capacity; "
    f"40.00 MiB already allocated; 40.00 MiB current active; {sizes} free; "
    f"{sizes} reserved in total by PyTorch\\). If reserved memory is >> allocated memory try "
    f"setting max_split_size_mb to avoid fragmentation."
)
assert re.match(want, text), text
stats = torch.npu.memory_stats()
assert stats["num_ooms"] == 1 and stats["num_alloc_retries"] == 1, stats
assert kept.cpu().eq(1).all()
del kept
assert torch.ones(50 * 2**20, dtype=torch.uint8, device="npu").cpu().eq(1).all()
print("went on")
