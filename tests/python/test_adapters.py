# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators on the driver's own kernels: fast path, meta, copies, and the way down.

Values are compared with PyTorch's CPU, and where a call ran is read off its counters. Everything
runs in child processes with NPU_HOST_KERNELS=all, so that small and large calls are the driver's.
"""

import pytest
from programs import names, program, variables

pytestmark = pytest.mark.machines

PREAMBLE = program(__file__, "_preamble")


@pytest.fixture
def script(run_python):
    def run(code, **variables):
        return run_python(PREAMBLE + code, **{"NPU_HOST_KERNELS": "all", **variables})

    return run


@pytest.mark.parametrize("name", names(__file__))
def test_program(script, name):
    script(program(__file__, name), **variables(__file__, name))


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


def test_flip_by_hand(script):
    script("""
a = torch.randn(3, 4, 5)
close(ran("flip", lambda: a.npu().flip(0, -1)), a.flip(0, -1))
close(ran("flip", lambda: a.npu().transpose(0, 2).flip(1)), a.transpose(0, 2).flip(1))
raises_same(lambda: a.flip(0, 0), lambda: a.npu().flip(0, 0))
raises_same(lambda: a.flip(7), lambda: a.npu().flip(7))
""")


@pytest.mark.parametrize("kernels", ["fast", "all"])
def test_numbers_that_no_element_can_be_are_the_cpus(script, kernels):
    code = program(__file__, "_numbers_that_no_element_can_be_are_the_cpus")
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
