# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
torch.npu.manual_seed_all(4)
a = torch.rand(8, device="npu:0").tolist()
b = torch.rand(8, device="npu:1").tolist()
assert a == b
states = torch.npu.get_rng_state_all()
assert len(states) == 2 and torch.equal(states[0], states[1])
torch.npu.manual_seed(5)
assert not torch.equal(*torch.npu.get_rng_state_all())
try:
    torch.rand(2, device="npu:1", generator=torch.Generator("npu:0"))
except RuntimeError as e:
    assert "npu:1" in str(e) and "npu:0" in str(e), e
else:
    raise SystemExit("no error")
