# SPDX-License-Identifier: Apache-2.0
import gc
def one():
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        a = x + y
        b = a + a
    graph.replay()
    is_all(b, 10)

one()
gc.collect()
before = torch.npu.memory_allocated()
for _ in range(5):
    one()
gc.collect()
assert torch.npu.memory_allocated() == before
