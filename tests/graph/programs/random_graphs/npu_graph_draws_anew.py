# SPDX-License-Identifier: Apache-2.0
x = torch.ones(64, device="npu")
drop = nn.Dropout(0.5)

def work():
    y = drop(x) + torch.rand_like(x)
    return y * 2 + drop(y)

stream = torch.npu.Stream()
with torch.npu.stream(stream):
    work()
torch.npu.synchronize()
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    z = work()
torch.manual_seed(5)
wanted = [work().cpu() for _ in range(3)]
torch.manual_seed(5)
for value in wanted:
    graph.replay()
    same([z], [value])
