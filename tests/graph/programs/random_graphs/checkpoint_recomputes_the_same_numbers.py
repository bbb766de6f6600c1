# SPDX-License-Identifier: Apache-2.0
torch.manual_seed(1)
model = Block().npu()
other = copy.deepcopy(model)
run = lambda m: lambda x: checkpoint(m, x, use_reentrant=False)
torch.npu.manual_seed(3)
wanted = trained(run(model), model)
torch.npu.manual_seed(3)
same(trained(compiled(run(other)), other), wanted)
assert total("replayed") > 0
