# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
seen = []
class Note(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        seen.append(torch.npu.current_stream().stream_id)
        return g
stream = torch.npu.Stream()
x = torch.ones(4, device="npu", requires_grad=True)
torch.npu.synchronize()
with torch.npu.stream(stream):
    y = Note.apply(x).sum()
torch.npu.current_stream().wait_stream(stream)
y.backward()
torch.npu.synchronize()
assert seen == [stream.stream_id]
assert x.grad.tolist() == [1.0] * 4
