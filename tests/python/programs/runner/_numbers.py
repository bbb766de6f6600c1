# SPDX-License-Identifier: Apache-2.0
x = torch.rand(40).npu()
xs = [torch.rand(3, 4).npu(), torch.rand(5).npu()]
params = [torch.rand(3, 3).npu().requires_grad_()]
params[0].grad = torch.rand_like(params[0])
wants = [x.cpu() * 3.7,
         *torch._foreach_mul([t.cpu() for t in xs], [2.5, -1.0]), x.cpu().bool().logical_and(torch.tensor(True)),
         x.cpu().long() + 7, x.cpu() * (1 + 2j)]
torch.npu.synchronize()
waits = faulty.npu_faulty_calls(b"stream.synchronize")
runs = faulty.npu_faulty_calls(b"op.run")
gots = [x * 3.7, *torch._foreach_mul(xs, [2.5, -1.0]),
        x.bool().logical_and(torch.tensor(True)), x.long() + 7, x * (1 + 2j)]
assert faulty.npu_faulty_calls(b"stream.synchronize") == waits, "the host waited for a number"
assert faulty.npu_faulty_calls(b"op.run") > runs + 4
for got, want in zip(gots, wants):
    torch.testing.assert_close(got.cpu(), want)
faults = broken()
assert not faults, faults
assert calls("mul.Tensor", 2) > 0 and calls("_foreach_mul.ScalarList", 2) + calls("_foreach_mul", 2) > 0
print("done")
