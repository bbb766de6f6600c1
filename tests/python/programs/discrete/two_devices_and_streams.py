# SPDX-License-Identifier: Apache-2.0
a = torch.randn(100, 100)
x = a.to("npu:0")
y = x.to("npu:1", non_blocking=True)
stream = torch.npu.Stream("npu:1")
stream.wait_stream(torch.npu.current_stream("npu:1"))
with torch.npu.stream(stream):
    z = y @ y
torch.npu.current_stream("npu:1").wait_stream(stream)
torch.testing.assert_close((z * y).to("npu:0").cpu(), a @ a * a, rtol=1e-3, atol=1e-3)
pinned = torch.empty(100, 100).pin_memory()
pinned.copy_(z, non_blocking=True)
torch.npu.synchronize("npu:1")
torch.testing.assert_close(pinned, a @ a, rtol=1e-3, atol=1e-3)
