# SPDX-License-Identifier: Apache-2.0
with torch.npu.graph(graph):
    a = x + y
    b = a + a
    c = torch.tanh(b)  # no kernel of the driver's
    d = c + c
    e = d + y
for number in (0.25, 0.5, -0.125):
    x.fill_(number)
    graph.replay()
    wanted = 2 * torch.tanh(torch.tensor(2 * (number + 3), dtype=torch.float64)) + 3
    torch.testing.assert_close(e.cpu().double(), wanted.expand(64), rtol=1e-6, atol=1e-6)
assert graphs()[0] == 2 and graphs()[1] >= 4, graphs()
