# SPDX-License-Identifier: Apache-2.0
import time, torch, torch_npu
x = torch.randn(400, 400).to("npu")
torch.linalg.lstsq(x, x)
torch.npu.reset_fallback_stats()
start = time.perf_counter()
for _ in range(5):
    torch.linalg.lstsq(x, x)
passed = time.perf_counter() - start
counted = sum(r["seconds"] for r in torch.npu.fallback_stats(native=True))
assert 0.2 * passed < counted < 1.2 * passed, (counted, passed)
