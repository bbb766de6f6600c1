# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
calls = {
    "addr": lambda d: torch.addr(*(torch.arange(1.0, n).to(d) for n in (4, 4)), torch.arange(1.0, 4).to(d)),
    "pixel_shuffle": lambda d: torch.pixel_shuffle(torch.arange(64.0).view(1, 16, 2, 2).to(d), 2),
    "pixel_unshuffle": lambda d: torch.pixel_unshuffle(torch.arange(64.0).view(1, 1, 8, 8).to(d), 2),
    "native_channel_shuffle": lambda d: torch.native_channel_shuffle(torch.arange(64.0).view(1, 16, 2, 2).to(d), 4),
}
for name, call in calls.items():
    assert torch.equal(call("npu").cpu(), call("cpu")), name
rungs = {r["overload"].removeprefix("aten::"): r["rung"] for r in torch.npu.fallback_stats()}
