# SPDX-License-Identifier: Apache-2.0
with torch.npu.graph(graph):
    a = x + y
    b = a + a
graph.replay()
graph.replay()
is_all(b, 10)
assert graphs()[2] == 0
kept = x.data
x.data = torch.full((64,), 10.0).npu()
graph.replay()
is_all(b, 26)
assert graphs()[2] == 1, graphs()
