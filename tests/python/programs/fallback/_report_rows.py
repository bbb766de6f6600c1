# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.ones(64, 64, device="npu")
for _ in range(3):
    torch.fmax(x, x)
x @ x
rows = torch.npu.fallback_stats()
assert [r["reported"] for r in rows] == ["aten::fmax.out"], rows
row = rows[0]
assert row["calls"] == 3 and row["rung"] == 4 and not row["native"], row
assert row["bytes"] == 3 * 3 * x.nbytes or row["bytes"] == 3 * 2 * x.nbytes, row
assert 0 < row["seconds"] < 5, row
assert "<string>:5" in row["call_site"], row
assert "aten::fmax" in torch.npu.fallback_report()
native = [r["overload"] for r in torch.npu.fallback_stats(native=True)]
assert "aten::mm" in native, native
