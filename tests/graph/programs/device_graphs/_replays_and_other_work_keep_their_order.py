# SPDX-License-Identifier: Apache-2.0
total = torch.zeros(64, device="npu")
with torch.npu.graph(graph):
    x.add_(y)
    total.add_(x)
    total.add_(y)
side = torch.npu.Stream()
for turn in range(5):
    y.fill_(float(turn))
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        graph.replay()
    torch.npu.current_stream().wait_stream(side)
value, sum_ = 2.0, 0.0
for turn in range(5):
    value += turn
    sum_ += value + turn
is_all(total, sum_)
