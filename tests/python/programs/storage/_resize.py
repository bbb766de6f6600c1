# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
# Ordered with the stream, and on the tensor's own device.
x = torch.empty(1000, device="npu:1").fill_(5)
x.resize_(4000)
assert x.device == torch.device("npu:1") and x[:1000].cpu().eq(5).all()
y = torch.empty(1000, device="npu:1").fill_(6)
y.untyped_storage().resize_(16000)
assert torch.empty(0, device="npu:1").set_(y.untyped_storage())[:1000].cpu().eq(6).all()
try:
    x.resize_(1 << 40)
except torch.OutOfMemoryError:
    assert x.shape == (4000,) and x[0].item() == 5
else:
    raise AssertionError
