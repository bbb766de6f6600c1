# SPDX-License-Identifier: Apache-2.0
import sys, torch, ditorch
backend = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU()).cuda()
given = torch.randn(2, 3, device="cuda", requires_grad=True)
def results(f):
    model.zero_grad(); given.grad = None
    out = f(given)
    out.square().sum().backward()
    return out, given.grad, model[0].weight.grad
for got, wanted in zip(results(torch.compile(model, backend=backend)), results(model)):
    torch.testing.assert_close(got, wanted)
    assert got.device == wanted.device == given.device
def makes(t):
    return t.sin() + torch.ones(2, device="cuda") + torch.arange(2, device=t.device)
torch.testing.assert_close(torch.compile(makes, backend=backend)(given[0, :2]), makes(given[0, :2]))
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert backend == "inductor" or torch.compile(model, backend=backend)(given).dtype == torch.bfloat16
