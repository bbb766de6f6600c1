# SPDX-License-Identifier: Apache-2.0
import torch, ditorch
def close(a, b): torch.testing.assert_close(a, b)
x, y = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y.copy_((x + 0) * 7)
for value in (3.0, -1.0):
    x.fill_(value)
    graph.replay()
    assert y.tolist() == [7 * value] * 3, y
torch.manual_seed(0)
model, eager = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU()).cuda() for _ in range(2))
eager.load_state_dict(model.state_dict())
graphed = torch.cuda.make_graphed_callables(model, (torch.randn(2, 3, device="cuda"),))
for _ in range(2):
    given = torch.randn(2, 3, device="cuda")
    got, wanted = graphed(given), eager(given)
    close(got, wanted)
    model.zero_grad(); eager.zero_grad()
    got.square().sum().backward(); wanted.square().sum().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters()):
        close(ours.grad, theirs.grad)
