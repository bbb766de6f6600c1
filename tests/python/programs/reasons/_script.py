# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
import torch.nn.functional as F

DTYPE, SIZE = "dtype not supported", "size not supported"
ALIAS, ARGUMENTS = "output overlaps an input", "arguments left to the CPU"
ATTRIBUTE, STRIDES = "attribute value not supported", "strides not supported"

def npu(*sizes, dtype=torch.float32):
    return torch.ones(*sizes).to(dtype).npu()

x = npu(4, 6)
square = npu(4, 4)
first = torch.zeros(1, dtype=torch.int64).npu()
aten = torch.ops.aten
# Calls that PyTorch's CPU runs: only those are counted, what it refuses raises.
CASES = [
    ("aten::mm.out", ALIAS, lambda: torch.mm(square, square, out=square)),
    ("aten::mm", SIZE, lambda: torch.mm(npu(4, 0), npu(0, 3))),
    ("aten::addmm.out", ALIAS, lambda: aten.addmm.out(square, square, square, out=square)),
    ("aten::huber_loss", DTYPE, lambda: F.huber_loss(x, x.double())),
    ("aten::huber_loss.out", ARGUMENTS, lambda: aten.huber_loss.out(x, x, 0, 1.0, out=npu(0))),
    ("aten::mse_loss_backward", DTYPE, lambda: aten.mse_loss_backward(x, x, x.double(), 0)),
    ("aten::_weight_norm_interface", STRIDES,
     lambda: aten._weight_norm_interface(npu(6, 4).t(), npu(4, 1), 0)),
    ("aten::_adaptive_avg_pool2d", ARGUMENTS, lambda: F.adaptive_avg_pool2d(npu(1, 2, 4, 4), 0)),
    ("aten::index_select", ARGUMENTS, lambda: torch.index_select(npu(()), 0, first)),
    ("aten::nonzero_static", SIZE, lambda: torch.nonzero_static(x, size=0)),
    ("aten::embedding_dense_backward", SIZE,
     lambda: aten.embedding_dense_backward(npu(1, 3), first, 0, -1, False)),
    ("aten::masked_scatter_", ALIAS, lambda: x.masked_scatter_(x > 0, x)),
    ("aten::all.dims", ATTRIBUTE, lambda: torch.all(x, dim=())),
    ("aten::std.correction", SIZE, lambda: torch.std(npu(1, 1))),
    ("aten::nansum.out", ARGUMENTS, lambda: torch.nansum(x, out=npu(0))),
]
for name, reason, call in CASES:
    torch.npu.reset_fallback_stats()
    try:
        call()
    except RuntimeError as error:  # some versions of PyTorch refuse mixed dtypes here
        assert name == "aten::mse_loss_backward" and "Found dtype" in str(error), (name, error)
        continue
    rows = [r for r in torch.npu.fallback_stats() if r["overload"] == name]
    got = [r["reason"] for r in rows]
    assert got == [reason], (name, reason, torch.npu.fallback_report())
    assert reason in torch.npu.fallback_report()
