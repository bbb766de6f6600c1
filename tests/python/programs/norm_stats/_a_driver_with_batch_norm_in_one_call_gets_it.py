# SPDX-License-Identifier: Apache-2.0
import ctypes, os, torch, torch_npu
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_take_tally.restype = ctypes.c_char_p

def step(device, train):
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(6).train(train).to(device)
    x = torch.randn(3, 6, 5, 4).to(device).requires_grad_()
    norm(x).square().sum().backward()
    return [t.detach().cpu() for t in (x.grad, norm.weight.grad, norm.running_mean, norm.running_var)]

for train in (True, False):
    want = step("cpu", train)
    faulty.npu_faulty_take_tally()
    got = step("npu", train)
    kinds = {line.split()[1] for line in faulty.npu_faulty_take_tally().decode().splitlines()}
    print(train, *sorted(kind for kind in kinds if kind.startswith("batch_norm")))
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)
