# SPDX-License-Identifier: Apache-2.0
classes = torch.tensor([0, 2, 4, 1])
x = torch.randn(4, 5, dtype=torch.float64, device="npu", requires_grad=True)
loss = lambda x: F.cross_entropy(x, classes.npu(), label_smoothing=0.1)
assert torch.autograd.gradcheck(loss, x) and torch.autograd.gradgradcheck(loss, x)
torch.testing.assert_close(
    torch.func.vmap(torch.func.grad(lambda x, t: F.cross_entropy(x, t)))(x.detach(), classes.npu()).cpu(),
    torch.func.vmap(torch.func.grad(lambda x, t: F.cross_entropy(x, t)))(x.detach().cpu(), classes))
torch.func.jvp(loss, (x.detach(),), (x.detach(),))
with torch.autocast("npu", dtype=torch.bfloat16):
    assert F.cross_entropy(x.detach().bfloat16(), classes.npu()).dtype == torch.float32
from torch.fx.experimental.proxy_tensor import make_fx
graph = make_fx(loss)(x.detach())
assert any("log_softmax" in str(node.target) for node in graph.graph.nodes)
