# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
event = torch.Event("npu:0")
event.record(torch.Stream("npu:0"))
try:
    event.record(torch.Stream("npu:1"))
except RuntimeError as e:
    assert "npu:0" in str(e) and "npu:1" in str(e), e
else:
    raise SystemExit("no error")
event.record(torch.Stream("npu:0"))
