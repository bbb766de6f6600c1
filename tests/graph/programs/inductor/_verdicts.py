# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu, torch.nn.functional as F

x = torch.randn(1, 2, 8, 16, device="npu", requires_grad=True)
mine = torch.library.Library("mine", "DEF")
mine.define("twice(Tensor x) -> Tensor")
mine.impl("twice", lambda x: x * 2, "PrivateUse1")
torch.library.register_fake("mine::twice", torch.empty_like)
torch.library.register_autograd("mine::twice", lambda ctx, grad: grad * 2)
FUNCTIONS = {
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x) * 2,
    "native parts": lambda x: F.gelu(x).softmax(-1) + x.relu(),
    "composed of others": lambda x: (x[0] * x[0, 0]).diag_embed() + x.amax(),
    "no kernel of the CPU": lambda x: F.rms_norm(x, (16,)),
    "the program's own": lambda x: torch.ops.mine.twice(x),
    "one of the CPU's": lambda x: torch.fmax(x, x.sin()) * 2,
    "two of them": lambda x: torch.fmin(torch.fmax(x, x + 1), x.cos()),
}


def verdicts(function):
    torch.npu.reset_fallback_stats()
    function(x).sum().backward()
    return {row["overload"] for row in torch.npu.fallback_stats()}


for name, function in FUNCTIONS.items():
    eager, compiled = verdicts(function), verdicts(torch.compile(function))
    assert eager == compiled, (name, eager, compiled)
    torch.npu.set_fallback("error")
    for run in (function, torch.compile(function)):
        try:
            run(x.detach())
        except RuntimeError as error:
            assert eager and "CPU fallback is disabled" in str(error), (name, error)
        else:
            assert not eager, name
    torch.npu.set_fallback("silent")
