# SPDX-License-Identifier: Apache-2.0
"""Why an operator went to the CPU: torch.npu.fallback_report() gives the true reason.

With all kernels in use, so that the adapter decides, not a preference of the driver; and on a driver
that is not the host's, whose own way the CPU kernels are.
"""

from faulty import faulty_environment

SCRIPT = """
import torch, torch_npu
import torch.nn.functional as F

DTYPE, SIZE = "dtype not supported", "size not supported"
ALIAS, ARGUMENTS = "output overlaps an input", "arguments left to the CPU"
ATTRIBUTE, STRIDES = "attribute value not supported", "strides not supported"

def npu(*sizes, dtype=torch.float32):
    return torch.ones(*sizes).to(dtype).npu()

def tried(fn):
    try:
        fn()
    except (RuntimeError, ValueError, IndexError):
        pass  # PyTorch's own error, from the CPU rung

x = npu(4, 6)
square = npu(4, 4)
i8 = torch.zeros(4, 6, dtype=torch.int8).npu()
index = torch.zeros(4, 6, dtype=torch.int64).npu()
CASES = [
    ("aten::mm.out", ALIAS, lambda: torch.mm(square, square, out=square)),
    ("aten::mm", SIZE, lambda: torch.mm(npu(4, 0), npu(0, 3))),
    ("aten::mm", DTYPE, lambda: torch.mm(square, square.double())),
    ("aten::huber_loss", DTYPE, lambda: F.huber_loss(x, x.double())),
    ("aten::huber_loss", ATTRIBUTE, lambda: torch.ops.aten.huber_loss(x, x, 1, -1.0)),
    ("aten::huber_loss.out", ARGUMENTS,
     lambda: torch.ops.aten.huber_loss.out(x, x, 0, 1.0, out=npu(2))),
    ("aten::native_layer_norm", DTYPE, lambda: F.layer_norm(i8, (6,))),
    ("aten::native_layer_norm", ARGUMENTS, lambda: F.layer_norm(x, (5,))),
    ("aten::_weight_norm_interface", STRIDES,
     lambda: torch.ops.aten._weight_norm_interface(npu(6, 4).t(), npu(4, 1), 0)),
    ("aten::glu", ARGUMENTS, lambda: F.glu(npu(4, 5))),
    ("aten::gather", DTYPE, lambda: torch.gather(x, 0, i8)),
    ("aten::scatter_.src", DTYPE, lambda: npu(4, 6).scatter_(0, index, x.double())),
    ("aten::scatter_reduce.two", ATTRIBUTE,
     lambda: torch.scatter_reduce(x, 0, index, x, "no such reduction")),
    ("aten::avg_pool3d", DTYPE, lambda: F.avg_pool3d(npu(1, 2, 4, 4, 4, dtype=torch.half), 2)),
    ("aten::_adaptive_avg_pool2d", ARGUMENTS, lambda: F.adaptive_avg_pool2d(npu(1, 2, 4, 4), 0)),
    ("aten::softshrink", ATTRIBUTE, lambda: F.softshrink(x, -1.0)),
    ("aten::kthvalue.values", ATTRIBUTE, lambda: torch.kthvalue(x, 9)),
    ("aten::std.correction", DTYPE, lambda: torch.std(i8)),
    ("aten::std.correction", SIZE, lambda: torch.std(npu(1, 1))),
]
for name, reason, call in CASES:
    torch.npu.reset_fallback_stats()
    tried(call)
    rows = [r for r in torch.npu.fallback_stats() if r["overload"] == name]
    got = [r["reason"] for r in rows]
    assert got == [reason], (name, reason, torch.npu.fallback_report())
    assert reason in torch.npu.fallback_report()
"""


def test_the_report_says_why(run_python):
    run_python(SCRIPT, NPU_HOST_KERNELS="all", **faulty_environment())


def test_mixed_layer_norm_reaches_the_driver(run_python):
    """Half inputs with float32 parameters: the kind takes them, forward and backward."""
    run_python(
        """
        import torch, torch_npu
        import torch.nn.functional as F
        from torch_npu import _C

        for dtype in (torch.bfloat16, torch.float16):
            cpu = [torch.randn(5, 16).to(dtype), torch.randn(16), torch.randn(16)]
            results = []
            for device in ("cpu", "npu"):
                x, w, b = (t.to(device).requires_grad_() for t in cpu)
                y = F.layer_norm(x, (16,), w, b)
                y.float().square().sum().backward()
                results.append([y.detach(), x.grad, w.grad, b.grad])
            for want, got in zip(*results):
                assert got.dtype == want.dtype
                torch.testing.assert_close(got.cpu(), want, rtol=2e-2, atol=2e-2)
        calls = _C._native_calls()
        for name in ("aten::native_layer_norm", "aten::native_layer_norm_backward"):
            assert calls[name][0][1] == 2, calls[name]
        assert "layer_norm" not in torch.npu.fallback_report()
        """,
        NPU_HOST_KERNELS="all",
    )
