# SPDX-License-Identifier: Apache-2.0
with torch.npu.graph(graph):
    a = x + y
    b = a + y
    c = b + a
for number in (2.0, 5.0, -1.0, 7.5):
    x.fill_(number)
    graph.replay()
    is_all(c, 2 * number + 9)
    is_all(b, number + 6)
