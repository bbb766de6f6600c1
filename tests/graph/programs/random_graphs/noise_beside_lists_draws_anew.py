# SPDX-License-Identifier: Apache-2.0
# NPU_GRAPH_OFF=chains
# Langevin dynamics: pass tiles takes frames that fill a buffer along with the lists that read it.
def step(parameters, gradients):
    noise = [torch.randn_like(p) for p in parameters]
    torch._foreach_mul_(gradients, 0.5)
    torch._foreach_add_(gradients, noise, alpha=0.1)
    torch._foreach_add_(parameters, gradients, alpha=-0.1)

def states(run):
    torch.manual_seed(3)
    lists = [[torch.ones(128, 128, device="npu") for _ in range(6)] for _ in range(2)]
    torch.manual_seed(7)
    found = []
    for _ in range(4):
        run(*lists)
        found += [t.cpu() for t in lists[0]]
    return found

with torch.no_grad():
    wanted = states(step)
    run = compiled(step)
    same(states(run), wanted)
assert not torch.equal(wanted[0], wanted[6])
assert total("replayed") and total("tiled"), [r.replayer.counts() for r in _compiler.runners]
