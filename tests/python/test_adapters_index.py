# SPDX-License-Identifier: Apache-2.0
"""Moving, indexing, embeddings, products, pools and resizing on the driver's own kernels.

One line per overload: an expression that is computed on the CPU and on the device, and must have run
as a call of the driver there. All of it with NPU_HOST_KERNELS=all, in child processes.
"""

import pytest
from test_adapters import PREAMBLE

CASES = {
    "move": """
cat | torch.cat([t(2, 3), t(4, 3), t(0)])
cat | torch.cat([t(2, 3), t(2, 5).half()], 1)
cat.out | torch.cat([t(2, 3), t(2, 5)], 1, out=t(0))
constant_pad_nd | F.pad(t(2, 3, 4), (1, 2, -1, 3), value=7.5)
reflection_pad1d | F.pad(t(2, 3, 4), (1, 3), mode="reflect")
reflection_pad2d | F.pad(t(2, 3, 4, 5), (1, 3, 2, 1), mode="reflect")
reflection_pad3d | F.pad(t(2, 3, 4, 5, 3), (1, 2, 2, 1, 0, 1), mode="reflect")
replication_pad1d | F.pad(t(2, 3, 4), (5, -1), mode="replicate")
replication_pad2d | F.pad(t(2, 3, 4, 5), (1, 3, 2, 1), mode="replicate")
replication_pad3d | F.pad(t(2, 3, 4, 5, 3), (1, 2, 2, 1, 0, 1), mode="replicate")
reflection_pad2d_backward | grad(lambda x: F.pad(x, (1, 3, 2, 1), mode="reflect"), t(2, 3, 4, 5))
replication_pad3d_backward | grad(lambda x: F.pad(x, (1,) * 6, mode="replicate"), t(2, 3, 4, 5, 3))
roll | torch.roll(t(3, 4), 5)
roll | torch.roll(t(3, 4), (1, -1, 2), (0, 1, 0))
tril | t(2, 4, 5).tril(-1)
triu_ | t(2, 4, 5).triu_(1)
tril.out | torch.tril(t(4, 5), out=t(4, 5).t())
repeat_interleave.Tensor | torch.repeat_interleave(i(5, 4))
arange.start_out | torch.arange(3, 30, 4, device=dev)
arange.start_out | torch.arange(1.5, -2, -0.25, device=dev)
linspace.out | torch.linspace(-3, 7, 11, device=dev)
logspace.out | torch.logspace(0, 2, 5, device=dev)
eye.m_out | torch.eye(3, 5, device=dev)
tril_indices | torch.tril_indices(4, 3, 1, device=dev)
triu_indices | torch.triu_indices(4, 3, -1, device=dev)
""",
    "index": """
gather | t(4, 5).gather(1, i(5, 4, 3))
gather | t(4, 5).t().gather(0, i(4, 2, 2).to(torch.int32))
scatter.src | t(4, 5).scatter(1, i(5, 4, 1), t(4, 5))
scatter_.value | t(4, 5).scatter_(0, i(4, 2, 3), 2.5)
scatter_.value_reduce | t(4, 5).scatter_(0, i(4, 2, 3), 2.5, reduce="multiply")
scatter_add | t(4, 5).scatter_add(1, i(5, 4, 9), t(4, 9))
scatter_reduce.two | t(4, 5).scatter_reduce(1, i(3, 4, 9), t(4, 9), "mean", include_self=False)
scatter_reduce.two | i(9, 4, 5).scatter_reduce(1, i(3, 4, 9), i(9, 4, 9), "amin")
index.Tensor | t(4, 5, 6)[i(4, 3), :, i(6, 3)]
index.Tensor | t(4, 5, 6)[:, i(5, 2, 1), i(6, 3)]
index.Tensor | t(4, 5)[t(4, 5) > 0]
_index_put_impl_ | put(t(4, 5), (i(4, 3),), t(5))
_index_put_impl_ | t(4, 5).index_put_((i(4, 9), i(5, 9)), t(9), accumulate=True)
index_select | t(4, 5).index_select(1, i(5, 7))
index_add | t(4, 5).index_add(0, i(4, 7), t(7, 5), alpha=0.5)
index_copy_ | t(4, 5).index_copy_(1, i(5, 1), t(4, 1))
index_fill_.int_Scalar | t(4, 5).index_fill_(1, i(5, 2) - 5, 3)
index_reduce | t(4, 5).index_reduce(0, i(4, 7), t(7, 5), "prod")
take | t(4, 5).t().take(i(20, 3) - 20)
put_ | t(4, 5).t().put_(i(20, 30), t(30), accumulate=True)
masked_select | t(4, 5).masked_select(t(5) > 0)
masked_scatter_ | t(4, 5).masked_scatter_(t(4, 1) > 0, t(30))
masked_fill_.Scalar | t(4, 5).masked_fill_(t(5) > 0, 2.5)
masked_fill_.Tensor | i(9, 4, 5).t().masked_fill_(t(5, 1) > 0, i(9))
nonzero | (t(4, 5) > 0).nonzero()
nonzero_static | torch.nonzero_static(t(4, 5) > 0, size=30, fill_value=-7)
index_select | F.embedding(i(9, 2, 3), t(9, 4))
embedding_dense_backward | grad(lambda w: F.embedding(i(9, 2, 3), w, padding_idx=1), t(9, 4))
embedding_renorm_ | F.embedding(i(9, 2, 3), 9 * t(9, 4), max_norm=1.0)
_embedding_bag_forward_only | F.embedding_bag(i(9, 12), t(9, 4), offsets(), mode="max")
_embedding_bag_backward | grad(lambda w: F.embedding_bag(i(9, 12), w, offsets(), mode="mean"), t(9, 4))
_embedding_bag_per_sample_weights_backward | grad(lambda s: F.embedding_bag(i(9, 12), t(9, 4), offsets(), mode="sum", per_sample_weights=s), t(12))
""",
    "order": """
searchsorted.Tensor | torch.searchsorted(t(3, 9).sort().values, t(3, 4), right=True)
searchsorted.Tensor_out | torch.searchsorted(t(9).sort().values, t(3, 4), out_int32=True, out=i(2, 3, 4).int())
searchsorted.Scalar | torch.searchsorted(t(9).sort().values, 0.1)
searchsorted.Scalar | torch.searchsorted(t(9).sort().values.half(), 0, side="right")
searchsorted.Scalar | torch.searchsorted(i(9, 20).sort().values, 3)
searchsorted.Scalar_out | torch.searchsorted(t(9).double().sort().values, 0.1, out=i(2))
bucketize.Tensor | torch.bucketize(t(3, 4).t(), t(9).sort().values)
bucketize.Tensor_out | torch.bucketize(t(3, 4), t(9).sort().values, right=True, out=i(2, 3, 4))
bucketize.Scalar | torch.bucketize(0.25, t(9).sort().values, out_int32=True)
isin.Tensor_Scalar | torch.isin(i(4, 3, 9), 2)
isin.Tensor_Scalar | torch.isin(i(4, 3, 9).t(), 2.5, invert=True)
isin.Tensor_Scalar | torch.isin(t(9).half(), 0.1)
isin.Tensor_Scalar_out | torch.isin(i(4, 3, 9), 2, out=i(2, 3, 9).bool())
isin.Scalar_Tensor | torch.isin(2, i(4, 3, 9))
isin.Scalar_Tensor | torch.isin(2.5, i(4, 3, 9), invert=True)
isin.Scalar_Tensor_out | torch.isin(2, i(4, 3, 9), out=i(2).bool())
histc | torch.histc(t(99), 7)
histc | torch.histc(t(99).double(), 7, -0.5, 1)
histogram.bin_ct | torch.histogram(t(99), 7)
histogram.bin_ct | torch.histogram(t(9, 11).t().double(), 5, range=(-1.0, 0.5), weight=u(11, 9).double())
histogram.bin_ct | torch.histogram(torch.ones(9, device=dev), 4, density=True)
histogram.bin_ct_out | torch.histogram(t(99), 4, out=(t(4), t(5)))
histogram.bins_tensor | torch.histogram(t(99), t(6).sort().values, density=True)
histogram.bins_tensor_out | torch.histogram(t(99), t(6).sort().values, weight=u(99), out=(t(5), t(6)))
bincount | torch.bincount(i(9, 30), minlength=12)
""",
    "gemm": """
mm | t(4, 300) @ t(300, 5)
mm.out | torch.mm(t(4, 3), t(5, 3).t(), out=t(0))
bmm | torch.bmm(t(2, 4, 3), t(2, 3, 5))
addmm | torch.addmm(t(5), t(4, 3), t(3, 5), beta=0.5, alpha=2)
addmm_ | t(4, 5).addmm_(t(4, 3), t(3, 5), beta=0.5)
addmm | torch.addmm(i(9, 4, 5), i(9, 4, 3), i(9, 3, 5), beta=2, alpha=3)
baddbmm | torch.baddbmm(t(4, 1), t(2, 4, 3), t(2, 3, 5))
addbmm | torch.addbmm(t(4, 5), t(2, 4, 3), t(2, 3, 5))
addmv | torch.addmv(t(4), t(4, 3), t(3), beta=0)
dot | torch.dot(t(30), t(30))
vdot | torch.vdot(torch.complex(t(9), t(9)), torch.complex(t(9), t(9)))
_addmm_activation | torch._addmm_activation(t(5), t(4, 3), t(3, 5), use_gelu=True)
_int_mm | torch._int_mm(i(9, 18, 32).to(torch.int8), i(9, 32, 8).to(torch.int8))
""",
    "pool": """
avg_pool2d | F.avg_pool2d(t(2, 3, 7, 8), 3, 2, 1, count_include_pad=False)
avg_pool3d | F.avg_pool3d(t(2, 3, 5, 6, 7), 2, ceil_mode=True)
avg_pool2d_backward | grad(lambda x: F.avg_pool2d(x, 3, 2, 1), t(2, 3, 7, 8))
max_pool2d_with_indices | F.max_pool2d(t(2, 3, 7, 8), 3, 2, 1, dilation=2, return_indices=True)
max_pool2d_with_indices | F.max_pool2d(t(2, 3, 7, 8).to(memory_format=torch.channels_last), 2)
max_pool3d_with_indices | F.max_pool3d(t(2, 3, 5, 6, 7), 2, return_indices=True)
max_pool2d_with_indices_backward | grad(lambda x: F.max_pool2d(x, 3, 1), t(2, 3, 7, 8))
max_pool3d_with_indices_backward | grad(lambda x: F.max_pool3d(x, 2), t(2, 3, 5, 6, 7))
_adaptive_avg_pool2d | F.adaptive_avg_pool2d(t(2, 3, 7, 8), (3, 5))
_adaptive_avg_pool3d_backward | grad(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), t(2, 3, 5, 6, 7))
adaptive_max_pool2d | F.adaptive_max_pool2d(t(2, 3, 7, 8), (3, 5), return_indices=True)
adaptive_max_pool3d_backward | grad(lambda x: F.adaptive_max_pool3d(x, 2), t(2, 3, 5, 6, 7))
fractional_max_pool2d | torch.ops.aten.fractional_max_pool2d(t(2, 3, 7, 8), (2, 3), (4, 3), u(2, 3, 2))
fractional_max_pool3d | torch.ops.aten.fractional_max_pool3d(t(2, 3, 7, 8, 6), (2, 3, 2), (4, 3, 3), u(2, 3, 3))
max_unpool2d | F.max_unpool2d(*F.max_pool2d(t(2, 3, 6, 8), 2, return_indices=True), 2)
im2col | F.unfold(t(2, 3, 7, 8), (2, 3), dilation=2, padding=1, stride=2)
col2im | F.fold(t(2, 12, 12), (4, 5), 2)
""",
    "resize": """
upsample_nearest1d | F.interpolate(t(2, 3, 7), 11)
upsample_nearest2d | F.interpolate(t(2, 3, 7, 8), scale_factor=1.7)
_upsample_nearest_exact3d | F.interpolate(t(2, 3, 4, 5, 6), 7, mode="nearest-exact")
upsample_linear1d | F.interpolate(t(2, 3, 7), 11, mode="linear")
upsample_bilinear2d | F.interpolate(t(2, 3, 7, 8), (5, 13), mode="bilinear", align_corners=True)
upsample_trilinear3d | F.interpolate(t(2, 3, 4, 5, 6), 7, mode="trilinear")
upsample_bicubic2d | F.interpolate(t(2, 3, 7, 8), (5, 13), mode="bicubic")
_upsample_bilinear2d_aa | F.interpolate(t(2, 3, 17, 18), (5, 13), mode="bilinear", antialias=True)
_upsample_bicubic2d_aa | F.interpolate(t(2, 3, 17, 18), (5, 13), mode="bicubic", antialias=True)
upsample_bilinear2d_backward | grad(lambda x: F.interpolate(x, 9, mode="bilinear"), t(2, 3, 7, 8))
_upsample_bicubic2d_aa_backward | grad(lambda x: F.interpolate(x, 5, mode="bicubic", antialias=True), t(2, 3, 9, 8))
grid_sampler_2d | F.grid_sample(t(2, 3, 5, 6), t(2, 4, 3, 2), align_corners=False)
grid_sampler_2d | F.grid_sample(t(2, 3, 5, 6), 2 * t(2, 4, 3, 2), "bicubic", "reflection", align_corners=True)
grid_sampler_3d | F.grid_sample(t(2, 3, 5, 6, 4), t(2, 4, 3, 2, 3), "nearest", "border", align_corners=False)
grid_sampler_2d_backward | grad(lambda x: F.grid_sample(x, t(2, 4, 3, 2), "bilinear", "reflection", align_corners=False), t(2, 3, 5, 6))
grid_sampler_2d_backward | grad(lambda g: F.grid_sample(t(2, 3, 5, 6), g, "bicubic", "border", align_corners=False), t(2, 4, 3, 2))
grid_sampler_3d_backward | grad(lambda g: F.grid_sample(t(2, 3, 5, 6, 4), g, align_corners=True), t(2, 4, 3, 2, 3))
""",
}

RUN = """
import sys
import torch.nn.functional as F

dev = "cpu"
made = []

def seeded(make):
    # Both devices get the same numbers, in the order they are asked for.
    torch.manual_seed(len(made))
    made.append(1)
    return make().to(dev)

def t(*shape):
    return seeded(lambda: torch.randn(shape))
def u(*shape):
    return seeded(lambda: torch.rand(shape))
def i(high, *shape):
    return seeded(lambda: torch.randint(high, shape))
def offsets():
    return torch.tensor([0, 3, 3, 7], device=dev)
def put(x, where, values):
    x[where] = values
    return x
def grad(f, x):
    x.requires_grad_()
    y = f(x)
    seed = torch.arange(y.numel()).remainder(7).sub(3.0).reshape(y.shape).to(dev)
    return torch.autograd.grad(y, x, seed)[0]

def compute(where, code):
    global dev
    dev = where
    made.clear()
    out = eval(code)
    return list(out) if isinstance(out, (tuple, list)) else [out]

failed = []
for line in CASES.strip().splitlines():
    overload, code = (part.strip() for part in line.split(" | ", 1))
    try:
        want = compute("cpu", code)
        before = calls(overload)
        got = compute("npu", code)
        after = calls(overload)
        assert sum(after) > sum(before), "it did not run on the driver"
        for w, g in zip(want, got, strict=True):
            close(g.detach(), w.detach())
    except Exception as e:
        failed.append(f"{line}\\n    {type(e).__name__}: {e}")
assert not failed, "\\n".join(failed)
"""


@pytest.mark.parametrize("family", CASES)
def test_overloads_on_the_driver(family, run_python):
    code = PREAMBLE + f"CASES = {CASES[family]!r}\n" + RUN
    run_python(code, NPU_HOST_KERNELS="all")


ERRORS = """
t(3, 4).gather(0, i(2, 3, 4) + 3)
t(3, 4).gather(0, i(2, 3, 4) - 2)
t(3, 4).scatter_(0, i(2, 3, 4) + 3, t(3, 4))
t(3, 4).scatter_add_(1, i(2, 3, 4) - 9, t(3, 4))
t(3, 4)[i(2, 5) + 3]
t(3, 4)[i(2, 5) - 9]
put(t(3, 4), (i(2, 5) + 3,), t(4))
t(3, 4).index_select(0, i(2, 5) + 3)
t(3, 4).index_add_(0, i(2, 5) + 3, t(5, 4))
t(3, 4).index_copy_(0, i(2, 5) + 3, t(5, 4))
t(3, 4).index_fill_(0, i(2, 5) + 3, 1)
t(3, 4).index_reduce_(0, i(2, 5) + 3, t(5, 4), "amax")
t(3, 4).take(i(2, 5) + 12)
t(3, 4).put_(i(2, 5) + 12, t(5))
t(3, 4).masked_scatter_(t(3, 4) > -9, t(3))
F.embedding(i(2, 5) + 3, t(3, 4))
F.embedding_bag(i(2, 5) + 3, t(3, 4), torch.tensor([0], device=dev))
torch.repeat_interleave(i(2, 5) - 3)
torch.mm(t(3, 4), t(3, 4))
torch.addmm(t(7), t(3, 4), t(4, 5))
torch.cat([t(3, 4), t(3, 5)])
F.pad(t(2, 3), (3, 3), mode="reflect")
torch.searchsorted(t(3, 4), 0.5)
torch.searchsorted(t(4), 0.5, right=True, side="left")
torch.bucketize(0.5, t(3, 4))
torch.isin(t(4) > 0, True)
torch.isin(torch.complex(t(4), t(4)), 1.0)
torch.histogram(t(9), 0)
torch.histogram(t(9) / 0, 3)
torch.histogram(t(9), 3, range=(2.0, 1.0))
torch.histogram(t(9), t(3, 3))
torch.histogram(t(9), 3, weight=t(8))
F.max_pool2d(t(1, 2, 2), 5)
F.interpolate(t(1, 2, 3), (0,))
"""

RUN_ERRORS = """
failed = []
for line in ERRORS.strip().splitlines():
    try:
        raises_same(lambda: compute("cpu", line), lambda: compute("npu", line))
        assert torch.ones(3, device="npu").sum().item() == 3
    except Exception as e:
        failed.append(f"{line}\\n    {type(e).__name__}: {e}")
assert not failed, "\\n".join(failed)
"""


def test_bad_arguments_raise_as_on_the_cpu(run_python):
    helpers = RUN[: RUN.index("failed = []")]
    run_python(PREAMBLE + helpers + f"ERRORS = {ERRORS!r}\n" + RUN_ERRORS, NPU_HOST_KERNELS="all")


def test_histc_counts_integers(run_python):
    """PyTorch's CPU refuses them; GPUs count them, and libraries route tokens to experts with it."""
    run_python(
        PREAMBLE
        + """
a = torch.randint(0, 9, (200,))
for dtype in (torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16):
    got = torch.histc(a.to(dtype).npu(), bins=8, min=0, max=7)
    want = torch.bincount(a, minlength=9)[:8].to(dtype)
    assert got.dtype == dtype and torch.equal(got.cpu(), want), (dtype, got, want)
out = torch.empty(3, dtype=torch.int32, device="npu")
assert torch.histc(a.int().npu(), 3, out=out) is out
assert out.tolist() == torch.histc(a.double(), 3).int().tolist()
"""
    )


ALPHA_AND_DEVICES = """
nan = torch.full((64, 64), float("nan"))
for n in (3, 64):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        if n == 64 and dtype is torch.bfloat16:
            continue  # the CPU's own answer differs from run to run
        def products(dev):
            a, c = nan[:n, :n].to(dev, dtype), torch.ones(n, n).to(dev, dtype)
            for beta in (0, 1):
                yield torch.addmm(c, a, c, beta=beta, alpha=0)
                yield torch.addmv(c[0], a, c[0], beta=beta, alpha=0)
                yield torch.baddbmm(c[None], a[None], c[None], beta=beta, alpha=0.0)
                if dtype not in (torch.float16, torch.bfloat16):  # computed in float32: ops/wide.yaml
                    yield torch.addbmm(c, a[None], c[None], beta=beta, alpha=0)
        for want, got in zip(products("cpu"), products("npu"), strict=True):
            assert torch.equal(want.isnan(), got.cpu().isnan()), (n, dtype)

x, far = torch.zeros(3, 4, device="npu"), torch.tensor([0, 1], device="npu:1")
for index in (far, far > 0):
    for use in (lambda: x[index], lambda: x.index_put_((index,), x[0])):
        try:
            use()
        except RuntimeError:
            pass
        else:
            raise AssertionError(index)
assert torch.equal(x[far.cpu()].cpu(), torch.zeros(2, 4))

for base in (2, 2.1, -2.5, True, 0, 1):
    for exponent in (torch.randn(3, 4).t(), torch.arange(-3, 5), torch.ones(5).half(), torch.randn(4).bfloat16()):
        want = torch.pow(base, exponent)
        if want.dtype == exponent.dtype:
            close(ran("pow.Scalar", lambda: torch.pow(base, exponent.npu())), want)
        else:
            close(torch.pow(base, exponent.npu()), want)
close(torch.pow(300, torch.ones(3, dtype=torch.uint8).npu()), torch.pow(300, torch.ones(3, dtype=torch.uint8)))
out = torch.empty(12, device="npu")
assert torch.pow(3.0, torch.ones(3, 4, device="npu"), out=out) is out and out.shape == (3, 4)
"""


def test_alpha_zero_far_indices_and_powers(run_python):
    """Products with alpha 0 as the CPU has them, indices of another device, numbers to a power."""
    run_python(
        PREAMBLE + ALPHA_AND_DEVICES,
        NPU_HOST_KERNELS="all",
        NPU_HOST_DEVICES="2",
        NPU_HALF_PRODUCTS="cpu",  # else halves answer as float32 does
    )
