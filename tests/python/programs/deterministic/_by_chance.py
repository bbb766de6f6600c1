# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu, warnings
x = torch.ones(4, device="npu")
torch.use_deterministic_algorithms(True)
try:
    x.fill_(2)
except RuntimeError as error:
    print("raised", error)
torch.use_deterministic_algorithms(True, warn_only=True)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    x.fill_(3)
print("warned", any("deterministic" in str(w.message) for w in seen), x.tolist())
