# SPDX-License-Identifier: Apache-2.0
F = torch.nn.functional
for fn in (F.relu, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.elu, F.softplus, torch.tanh, torch.sigmoid,
           F.leaky_relu, F.hardtanh, F.hardshrink, F.softshrink, F.logsigmoid, lambda t: F.gelu(t, approximate="tanh"),
           lambda t: F.threshold(t, 0.1, 2.0), lambda t: torch.clamp(t, -0.5, 0.5), lambda t: torch.lerp(t, t * 2, 0.3)):
    a = torch.randn(7, 9, requires_grad=True)
    x = a.detach().npu().requires_grad_()
    (fn(a) * 3).sum().backward()
    (fn(x) * 3).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), a.grad)
