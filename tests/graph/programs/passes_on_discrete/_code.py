# SPDX-License-Identifier: Apache-2.0
import os, torch, torch_npu, torchair
from torchair import _compiler

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

def trained(off):
    os.environ["NPU_GRAPH_OFF"] = off
    torch._dynamo.reset()
    _compiler.runners.clear()
    draw = torch.Generator().manual_seed(5)
    shapes = [(40, 300), (7,), (64, 64), (120, 90), (5000,)]
    parameters = [torch.nn.Parameter(torch.randn(s, generator=draw).npu()) for s in shapes]
    # Eager CPU in float64 has the same formulas with capturable=False: what both are compared with.
    exact = [torch.nn.Parameter(p.detach().cpu().double()) for p in parameters]
    step = torch.optim.AdamW(parameters, lr=1e-2)
    truth = torch.optim.AdamW(exact, lr=1e-2)
    compiled = torch.compile(step.step, backend=torchair.get_npu_backend())
    for turn in range(4):
        for p, e in zip(parameters, exact):
            grad = torch.randn(p.shape, generator=draw)
            p.grad, e.grad = grad.npu(), grad.double()
        compiled()
        truth.step()
    for p, e in zip(parameters, exact):
        torch.testing.assert_close(p.cpu().double(), e, rtol=1e-5, atol=1e-5)
    counted = {name: total(name) for name in ("replayed", "copies_removed", "reused", "tiled")}
    return [p.detach().cpu() for p in parameters], counted

plain, none = trained("copies,reuse,tiles,rows,chains")
assert none["replayed"] > 0 and not any(none[n] for n in ("copies_removed", "reused", "tiled")), none
for off, works in (("chains", "tiled"), ("tiles,chains", "reused"), ("reuse,tiles,chains", "copies_removed")):
    got, counted = trained(off)
    assert counted[works] > 0, (off, counted)
    for a, b in zip(got, plain):
        assert torch.equal(a, b), off
