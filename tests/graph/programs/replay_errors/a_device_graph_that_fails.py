# SPDX-License-Identifier: Apache-2.0
graph = torch.npu.NPUGraph()
y = torch.empty_like(x)
with torch.npu.graph(graph):
    torch.exp(torch.sin(x), out=y)
graph.replay()
fails("op.run:2", graph.replay, "aten::exp", "as asked")
y.zero_()
graph.replay()
judge(y + state * 0.5, x, state)
works()
