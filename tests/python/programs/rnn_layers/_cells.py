# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
torch.manual_seed(0)
for kind, cell in ((torch.nn.LSTM, "lstm"), (torch.nn.GRU, "gru")):
    model = kind(4, 4, 2).npu()
    torch.npu.reset_fallback_stats()
    model(torch.randn(3, 2, 4).npu())[0].sum().backward()
    rows = torch.npu.fallback_stats(native=True)
    on_cpu = {r["overload"]: r["rung"] for r in rows if r["calls"] and cell in r["overload"]}
    assert not on_cpu, on_cpu
