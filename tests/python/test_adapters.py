# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators on the driver's own kernels: fast path, meta, copies, and the way down.

Values are compared with PyTorch's CPU, and where a call ran is read off its counters. Everything
runs in child processes with NPU_HOST_KERNELS=all, so that small and large calls are the driver's.
"""

import pytest

pytestmark = pytest.mark.machines

PREAMBLE = """
import warnings, torch, torch_npu
from torch_npu import _C
torch.manual_seed(0)

def calls(overload):
    rows = _C._native_calls().get("aten::" + overload, [])
    return tuple(sum(row[rung] for row in rows) for rung in (1, 2, 3))

def ran(overload, fn, rung=1, times=1):
    before = calls(overload)
    out = fn()
    after = calls(overload)
    assert after[rung - 1] - before[rung - 1] == times, (overload, before, after)
    return out

def close(got, want):
    assert got.device.type == "npu" and got.dtype == want.dtype, (got, want)
    assert got.shape == want.shape and got.stride() == want.stride(), (got.stride(), want.stride())
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)

def raises_same(host, here):
    try:
        host()
    except Exception as e:
        want = e
    else:
        raise AssertionError("CPU does not raise")
    try:
        here()
    except type(want) as e:
        return str(want), str(e)
    raise AssertionError("npu does not raise")
"""


@pytest.fixture
def script(run_python):
    def run(code, **variables):
        return run_python(PREAMBLE + code, **{"NPU_HOST_KERNELS": "all", **variables})

    return run


def test_fast_path_structured_path_and_counters(script):
    script("""
a, b = torch.randn(64), torch.randn(64)
x, y = a.npu(), b.npu()
close(ran("add.Tensor", lambda: x + y), a + b)
close(ran("mul.Tensor", lambda: x * y), a * b)
close(ran("relu", lambda: torch.relu(x)), torch.relu(a))
close(ran("sub.Tensor", lambda: torch.sub(x, y, alpha=3)), torch.sub(a, b, alpha=3))
z = x.clone()
ran("add_.Tensor", lambda: z.add_(y, alpha=2))
close(z, a.clone().add_(b, alpha=2))
out = torch.empty(0, device="npu")
ran("add.out", lambda: torch.add(x, y, out=out))
close(out, a + b)
row = [r for r in _C._native_calls()["aten::add.Tensor"] if r[1]][0]
assert (row["kind"], row["code"]) == ("binary", "add"), row
""")


def test_broadcasting_promotion_and_numbers(script):
    script("""
a, i, h = torch.randn(3, 1, 4), torch.arange(5, dtype=torch.int32)[:, None], torch.randn(4).half()
x, j, k = a.npu(), i.npu(), h.npu()
close(ran("add.Tensor", lambda: x + j), a + i)
close(ran("mul.Tensor", lambda: x * k), a * h)
close(ran("mul.Tensor", lambda: j * 2.5), i * 2.5)
close(ran("add.Tensor", lambda: x + 1), a + 1)
close(ran("mul.Tensor", lambda: k * 0.1), h * 0.1)
close(ran("add.Tensor", lambda: k + torch.tensor(3.0)), h + torch.tensor(3.0))
close(ran("add.Tensor", lambda: torch.tensor(3.0) + x), torch.tensor(3.0) + a)
close(ran("sqrt", lambda: torch.sqrt(j)), torch.sqrt(i))
close(ran("div.Tensor", lambda: j / 2), i / 2)
close(ran("div.Tensor_mode", lambda: torch.div(x, 0.3, rounding_mode="floor")),
      torch.div(a, 0.3, rounding_mode="floor"))
close(ran("eq.Scalar", lambda: j == 2), i == 2)
close(ran("lt.Tensor", lambda: j < x), i < a)
u = torch.tensor([250, 3], dtype=torch.uint8)
close(ran("add.Tensor", lambda: u.npu() + 10), u + 10)
close(ran("mul.Tensor", lambda: torch.tensor(2).npu() * 3.5), torch.tensor(2) * 3.5)
""")


def test_broadcasting_of_contiguous_tensors(script):
    # No iterator settles these shapes: sizes, strides and values are as it would have them.
    script("""
shapes = [((8, 8), (8,)), ((8,), (8, 8)), ((4, 1), (1, 5)), ((2, 3, 4), (3, 1)), ((2, 3, 4), (2, 1, 4)),
          ((3,), ()), ((), (2, 2)), ((1, 3), (3,)), ((2, 1, 1, 5), (3, 4, 1)), ((1, 1), (1,)),
          ((2, 1) * 4, (1, 3) * 4)]
for left, right in shapes:
    a, b = torch.randn(left), torch.randn(right)
    for name in ("add", "mul", "maximum", "atan2"):
        op = getattr(torch, name)
        want, got = op(a, b), op(a.npu(), b.npu())
        assert got.stride() == want.stride(), (left, right, got.stride(), want.stride())
        close(got, want)
    close(ran("addcmul", lambda: torch.addcmul(a.npu(), b.npu(), a.npu())), torch.addcmul(a, b, a))
x = torch.randn(2, 3)
close(ran("mul_.Tensor", lambda: x.npu().mul_(torch.ones(3, device="npu"))), x)
odd = torch.randn(6).as_strided((2, 1, 3), (3, 1, 1))
assert (odd.npu() + torch.ones(1, 2, 1, device="npu")).stride() == (odd + torch.ones(1, 2, 1)).stride()
for left, right in (((3,), (1, 3)), ((3,), (2, 3)), ((1, 3), (2, 3))):
    a, b = torch.randn(left), torch.randn(right)
    for device in ("cpu", "npu"):
        try:
            a.to(device).clone().add_(b.to(device))
            raise AssertionError((left, right, device))
        except RuntimeError as error:
            assert "doesn't match the broadcast shape" in str(error), error
shared = torch.arange(6.0, device="npu")
got = shared.view(2, 3).clone().mul_(shared[:3])
close(got, torch.arange(6.0).view(2, 3) * torch.arange(3.0))
""")


def test_layouts_are_kept(script):
    script("""
a = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
b = torch.randn(2, 3, 4, 5)
x, y = a.npu(), b.npu()
assert x.stride() == a.stride()
close(ran("exp", lambda: torch.exp(x)), torch.exp(a))
close(ran("add.Tensor", lambda: x + x), a + a)
close(ran("add.Tensor", lambda: x + y), a + b)
close(ran("add.Tensor", lambda: y + x), b + a)
close(ran("mul.Tensor", lambda: y.transpose(1, 3) * 2), b.transpose(1, 3) * 2)
close(ran("mul.Tensor", lambda: y[:, ::2, :, 1:] * x[:, ::2, :, 1:]), b[:, ::2, :, 1:] * a[:, ::2, :, 1:])
v = y[:, 1]
ran("mul_.Tensor", lambda: v.mul_(2))
w = b[:, 1]
w.mul_(2)
close(y, b)
""")


def test_conj_neg_and_complex(script):
    script("""
a = torch.randn(6, dtype=torch.complex64)
x = a.npu()
close(x.conj() * x, a.conj() * a)
close(torch.exp(x.conj()), torch.exp(a.conj()))
close(x.imag.neg() + 1, a.imag.neg() + 1)
close(torch._neg_view(x.real) * 2, torch._neg_view(a.real) * 2)
close(x * 2j, a * 2j)
close(x.real * 1j, a.real * 1j)
""")


def test_empty_and_zero_dim(script):
    script("""
for a, b in ((torch.zeros(0), torch.ones(1)), (torch.zeros(2, 0, 3), torch.ones(3)),
             (torch.tensor(2.0), torch.tensor(3.0)), (torch.zeros(0, 3), torch.ones(1, 3))):
    close(a.npu() + b.npu(), a + b)
    close(torch.exp(a.npu()), torch.exp(a))
    close(a.npu() > b.npu(), a > b)
""")


def test_out_and_inplace_raise_as_on_cpu(script):
    script("""
a, b = torch.randn(4), torch.randn(4)
x, y = a.npu(), b.npu()
i = torch.arange(4)
for host, here in (
    (lambda: torch.add(a, b, out=torch.empty(4, dtype=torch.int32)),
     lambda: torch.add(x, y, out=torch.empty(4, dtype=torch.int32, device="npu"))),
    (lambda: i.clone().add_(1.5), lambda: i.npu().add_(1.5)),
    (lambda: torch.ones(3).add_(torch.ones(2, 3)), lambda: torch.ones(3).npu().add_(torch.ones(2, 3).npu())),
    (lambda: torch.ones(3) + torch.ones(4), lambda: torch.ones(3).npu() + torch.ones(4).npu()),
    (lambda: a.expand(3, 4).add_(1), lambda: x.expand(3, 4).add_(1)),
    (lambda: torch.add(a[:3], 1, out=a[1:]), lambda: torch.add(x[:3], 1, out=x[1:])),
    (lambda: torch.ones(3, dtype=torch.bool) - torch.ones(3, dtype=torch.bool),
     lambda: torch.ones(3, dtype=torch.bool).npu() - torch.ones(3, dtype=torch.bool).npu()),
    (lambda: torch.add(a, b, alpha=True), lambda: torch.add(x, y, alpha=True)),
    (lambda: torch.add(a, b, alpha=1j), lambda: torch.add(x, y, alpha=1j)),
    (lambda: torch.bitwise_and(a, b), lambda: torch.bitwise_and(x, y)),
    (lambda: torch.clamp(a), lambda: torch.clamp(x)),
    (lambda: torch.relu(torch.ones(2, dtype=torch.bool)), lambda: torch.relu(torch.ones(2, dtype=torch.bool).npu())),
    (lambda: torch.polygamma(-1, a), lambda: torch.polygamma(-1, x)),
    (lambda: torch.nn.functional.softshrink(a, -1.0), lambda: torch.nn.functional.softshrink(x, -1.0)),
    (lambda: torch.celu(a, 0.0), lambda: torch.celu(x, 0.0)),
    (lambda: torch.nn.functional.gelu(a, approximate="x"), lambda: torch.nn.functional.gelu(x, approximate="x")),
):
    raises_same(host, here)
try:
    x + b
    raise AssertionError
except RuntimeError as e:
    assert "Expected all tensors to be on the same device" in str(e) and "ERR" in str(e), e
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    out = torch.empty(3, device="npu")
    torch.add(x, y, out=out)
    assert any("resized" in str(w.message) for w in seen), seen
close(out, a + b)
wide = torch.empty(4, dtype=torch.float64, device="npu")
close(torch.add(x, y, out=wide), torch.add(a, b, out=torch.empty(4, dtype=torch.float64)))
strided = torch.zeros(4, 2, device="npu")[:, 0]
assert torch.add(x, y, out=strided) is strided
torch.testing.assert_close(strided.cpu(), a + b)
""")


def test_backward_of_activations(script):
    script("""
F = torch.nn.functional
for fn in (F.relu, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.elu, F.softplus, torch.tanh, torch.sigmoid,
           F.leaky_relu, F.hardtanh, F.hardshrink, F.softshrink, F.logsigmoid, lambda t: F.gelu(t, approximate="tanh"),
           lambda t: F.threshold(t, 0.1, 2.0), lambda t: torch.clamp(t, -0.5, 0.5), lambda t: torch.lerp(t, t * 2, 0.3)):
    a = torch.randn(7, 9, requires_grad=True)
    x = a.detach().npu().requires_grad_()
    (fn(a) * 3).sum().backward()
    (fn(x) * 3).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), a.grad)
""")


def test_disabled_kinds_take_the_cpu_rung(script):
    script(
        """
a, b = torch.randn(64), torch.randn(64)
assert torch.equal((a.npu() + b.npu()).cpu(), a + b)
assert calls("add.Tensor") == (0, 0, 0)
rows = {r["overload"]: r for r in _C._fallback_rows()}
assert rows["aten::add.Tensor"]["rung"] == 4, rows
close(ran("exp", lambda: torch.exp(a.npu())), torch.exp(a))
""",
        NPU_DISABLE_KIND="binary",
    )


def test_default_leaves_large_calls_to_the_cpu_rung(run_python):
    run_python(
        PREAMBLE
        + """
a = torch.randn(1 << 21)
x = a.npu()
assert torch.equal((x * x).cpu(), a * a)
rows = {r["overload"]: r for r in _C._fallback_rows()}
assert "aten::mul.Tensor" in rows or calls("mul.Tensor")[0] == 1
"""
    )


@pytest.mark.parametrize("asked, own", [("fast", False), ("", True), ("all", True)])
def test_choice_of_kernels_holds_with_asynchronous_streams(script, asked, own):
    """unique is not among the fast kernels; all of them is only what is meant when nothing is said."""
    code = f"torch.ones(8).npu().unique(); assert bool(calls('_unique2')[0]) is {own}"
    script(code, NPU_HOST_ASYNC="1", NPU_HOST_KERNELS=asked)


@pytest.mark.parametrize("kernels", ["fast", "all"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_meet_halves_as_on_the_cpu(script, kernels, dtype):
    """Rounded to half first, unless a half is multiplied with one or divided by one."""
    code = f"""
import operator as o
c = 5.723649429247001  # no half
number = torch.tensor(c, dtype=torch.float64)
a = (torch.randn(60) * 3).to(torch.{dtype})
a[::7] = c
trunc = lambda x, y: torch.div(x, y, rounding_mode="trunc")
for op in (o.add, o.sub, o.mul, o.truediv, o.floordiv, o.mod, torch.fmod, trunc,
           o.eq, o.ne, o.lt, o.le, o.gt, o.ge):
    for x in (a, a.reshape(6, 10).t()):
        assert torch.equal(op(x.npu(), c).cpu(), op(x, c)), op
for op in (torch.add, torch.sub, torch.mul, torch.div, torch.eq):
    assert torch.equal(op(number, a.npu()).cpu(), op(number, a)), op
"""
    script(code, NPU_HOST_KERNELS=kernels)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_next_number_after_a_half_is_a_half(script, dtype):
    """Not the next float32, which rounds back to where it came from."""
    script(f"""
a, b = torch.randn(60).to(torch.{dtype}), torch.randn(60).to(torch.{dtype})
got = torch.nextafter(a.npu(), b.npu()).cpu()
assert torch.equal(got, torch.nextafter(a, b)) and not torch.equal(got, a)
""")


def test_resetting_the_report_resets_the_counters(script):
    script("""
x = torch.ones(8).npu()
x + x
assert calls("add.Tensor")[0] == 1
torch.npu.reset_fallback_stats()
assert calls("add.Tensor") == (0, 0, 0)
""")


def test_where(script):
    script("""
c = torch.tensor([[True], [False], [True]])
a, b = torch.randn(4), torch.randn(3, 4).double()
x, y, m = a.npu(), b.npu(), c.npu()
close(ran("where.self", lambda: torch.where(m, x, y)), torch.where(c, a, b))
close(ran("where.self", lambda: torch.where(m, x, 0.5)), torch.where(c, a, 0.5))
close(ran("where.self", lambda: torch.where(m, 2, x)), torch.where(c, 2, a))
close(ran("where.self", lambda: torch.where(m, torch.arange(4).npu(), x)), torch.where(c, torch.arange(4), a))
out = torch.empty(0, device="npu", dtype=torch.float64)
ran("where.self_out", lambda: torch.where(m, x, y, out=out))
close(out, torch.where(c, a, b))
raises_same(lambda: torch.where(c, a, b, out=torch.empty(0)),
            lambda: torch.where(m, x, y, out=torch.empty(0, device="npu")))
z = torch.zeros(0, 4)
close(torch.where(z.npu() > 0, z.npu(), x), torch.where(z > 0, z, a))
""")


def test_flip_by_hand(script):
    script("""
a = torch.randn(3, 4, 5)
close(ran("flip", lambda: a.npu().flip(0, -1)), a.flip(0, -1))
close(ran("flip", lambda: a.npu().transpose(0, 2).flip(1)), a.transpose(0, 2).flip(1))
raises_same(lambda: a.flip(0, 0), lambda: a.npu().flip(0, 0))
raises_same(lambda: a.flip(7), lambda: a.npu().flip(7))
""")


def test_layouts_of_results_as_on_cpu(script):
    """Some operators keep the order of the dims, also where the input has gaps; some keep nothing."""
    script("""
base = torch.rand(7, 6, 10)
keep = (torch.frexp, lambda t: t.flip(0), lambda t: torch._foreach_exp([t])[0])
drop = (lambda t: t.logcumsumexp(-1),)
draw = (torch.poisson, torch._standard_gamma, lambda t: torch.binomial(t, t))
views = (
    lambda t: t[..., ::2].permute(2, 1, 0),
    lambda t: t[:, ::2].permute(1, 0, 2),
    lambda t: t[:1].expand(5, 6, 10).permute(2, 0, 1),
    lambda t: t.permute(1, 2, 0),
)
for view in views:
    a, x = view(base), view(base.npu())
    for f in (*keep, *drop):
        torch.utils._pytree.tree_map(close, f(x), f(a))
    for f in draw:
        assert f(x).stride() == f(a).stride(), (f, f(x).stride())
""")


def test_unique_slices_lie_as_on_cpu(script):
    script("""
for sizes in ((5, 1), (5, 3), (2, 3, 4), (2, 3, 1)):
    for a in (torch.zeros(sizes), torch.randint(0, 2, sizes)):
        for dim in range(len(sizes)):
            for f in (torch.unique, torch.unique_consecutive):
                got = f(a.npu(), dim=dim, return_inverse=True, return_counts=True)
                want = f(a, dim=dim, return_inverse=True, return_counts=True)
                for g, w in zip(got, want, strict=True):
                    close(g, w)
assert calls("unique_dim")[0] > 0
""")


def test_sums_of_complex_halves(script):
    """PyTorch's CPU has none. Accelerators add and multiply them (ops/wide.yaml); the rest raises as on the CPU."""
    script("""
a = torch.ones(3, 4, dtype=torch.complex32)
x = a.npu()
for f in (torch.sum, torch.prod):
    close(f(x), f(a.to(torch.complex64)).to(torch.complex32))
    close(f(x.real, dtype=torch.complex32), f(a.to(torch.complex64)).to(torch.complex32))
for f in (torch.mean, lambda t: t.cumsum(0), lambda t: t.cumprod(1), lambda t: t.logcumsumexp(1)):
    raises_same(lambda: f(a), lambda: f(x))
close(x.sum(dtype=torch.complex64), a.sum(dtype=torch.complex64))
close(torch.linalg.vector_norm(x), torch.linalg.vector_norm(a))
close(x.any(1), a.any(1))
""")


@pytest.mark.parametrize("kernels", ["fast", "all"])
def test_numbers_that_no_element_can_be_are_the_cpus(script, kernels):
    code = """
x, b, i = torch.ones(3), torch.tensor([1, 200, 0], dtype=torch.uint8), torch.ones(3, dtype=torch.int32)
def same(f):
    answers = []
    for device in ("cpu", "npu"):
        try:
            answers.append(f(device).tolist())
        except RuntimeError as error:
            answers.append(str(error).splitlines()[0])
    assert answers[0] == answers[1], answers
same(lambda d: torch.addcmul(x.to(d), x.to(d), x.to(d), value=1 + 2j))
same(lambda d: x.to(d).addcdiv_(x.to(d), x.to(d), value=2j))
same(lambda d: torch.nn.functional.threshold(x.to(d), 2.0, 1j))
same(lambda d: x.to(d).clamp(min=1j))
same(lambda d: b.to(d).clamp(min=-1))
same(lambda d: b.to(d).clamp_(max=-1))
same(lambda d: torch._foreach_minimum([b.to(d)], -1)[0])
same(lambda d: torch.add(i.to(d), i.to(d), alpha=2**40))
same(lambda d: torch.add(b.to(d), b.to(d), alpha=300))
"""
    script(code, NPU_HOST_KERNELS=kernels)


def test_operators_that_change_the_bit_of_the_view_they_write(script):
    script("""
z = torch.tensor([1 + 2j, 3 - 4j])
for change in (lambda z: z.conj().conj_physical_(), lambda z: torch._neg_view(z).neg_()):
    x = z.npu()
    got, want = change(x), change(z.clone())
    assert torch.equal(got.resolve_conj().resolve_neg().cpu(), want.resolve_conj().resolve_neg())
    close(x, (-z if want.is_neg() else z.conj()).resolve_conj())
""")
