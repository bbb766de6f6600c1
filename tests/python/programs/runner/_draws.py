# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch_npu import _C
torch.manual_seed(4)
x = torch.empty(4, 6, device="npu").t().uniform_()
print([round(v, 6) for v in x.flatten().tolist()], torch.randperm(6, device="npu").tolist(),
      torch.multinomial(torch.ones(9, device="npu"), 4).tolist(),
      torch.nn.functional.dropout(torch.ones(9, device="npu")).tolist())
rows = {row["overload"]: row for row in _C._fallback_rows()}
names = ("aten::uniform_", "aten::randperm.generator_out", "aten::multinomial.out", "aten::native_dropout")
if RUNG:
    assert all(rows[name]["rung"] == RUNG and rows[name]["calls"] for name in names), rows
    assert all((rows[name]["bytes"] > 0) == (RUNG == 5) for name in names), rows
else:
    assert not any(name in rows for name in names), rows
