# SPDX-License-Identifier: Apache-2.0
torch.npu.synchronize()
_C._fallback_reset()
x = torch.rand(64, 32).npu()
x[:, ::2].exp()                  # strides
off_by_one(x).exp()              # alignment
torch.rand(64, 32).half().npu().exp()
rows = [r for r in _C._fallback_rows() if r["rung"] == 2 and r["overload"].startswith("aten::exp")]
assert {r["reason"] for r in rows} == {"strides not supported", "alignment not supported", "dtype not supported"}, rows
assert all(r["calls"] == 1 and r["seconds"] > 0 for r in rows), rows
by = {r["reason"].split()[0]: r["bytes"] for r in rows}
assert by == {"strides": 64 * 16 * 4, "alignment": 64 * 32 * 4, "dtype": 64 * 32 * 6}, by
assert not broken()
_C._fallback_reset()
assert not [r for r in _C._fallback_rows() if r["rung"] == 2]
print("done")
