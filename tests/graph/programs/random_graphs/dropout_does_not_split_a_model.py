# SPDX-License-Identifier: Apache-2.0
"""One segment forward and one backward: no islands. The same numbers as eager mode over four steps,
also when the state of the generator is set and read between replays."""
torch.manual_seed(1)
model = nn.Sequential(Block(), Block()).npu()
other = copy.deepcopy(model)
states = {}

def between(turn):
    if turn == 0:
        torch.npu.manual_seed(3)
    if turn == 2:
        states[len(states)] = torch.npu.get_rng_state()
        torch.npu.set_rng_state(torch.npu.get_rng_state())
        torch.rand(5, device="npu")
    if turn == 3:
        torch.npu.manual_seed(11)

wanted = trained(model, model, between)
after = torch.rand(4, device="npu")
got = trained(compiled(other), other, between)
same(got, wanted)
same([torch.rand(4, device="npu")], [after])
same([states[0]], [states[1]])
assert total("recorded") == 2 and total("replayed") >= 5 and total("left") == 0
assert total("islands") == 0, total("islands")
