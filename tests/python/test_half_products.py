# SPDX-License-Identifier: Apache-2.0
"""Products of halves where the CPU has no instructions for them: in float32, rounded once, said so (ops/wide.yaml, `slow`)."""

import json
import os
from pathlib import Path

import interpreter
import pytest
import torch
from programs import program
from torch.nn import functional as F

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
BITS = {torch.float16: 10, torch.bfloat16: 7}
# Of the sum of the terms' magnitudes: 32 roundings of float32. Halves round in steps of 2^-8 and 2^-11.
FLOAT32 = 2.0**-19


def randn(*sizes, dtype):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(7)).to(dtype)


def convolution(x, w, stride=1, groups=1):
    return F.conv2d(x, w, stride=stride, padding=1, groups=groups)


def gradients(fn, tensors, grad):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(fn(*leaves), leaves, grad)


# Operators and sizes that are cast, with the sizes of their operands. Each is a sum of products: of
# the magnitudes of its operands it is the sum of the magnitudes of its terms.
PRODUCTS = {
    "mm": (torch.mm, [(48, 64), (64, 40)]),
    "mm transposed": (lambda a, b: torch.mm(a.t(), b.t()), [(64, 48), (40, 64)]),
    "addmm": (torch.addmm, [(40,), (48, 64), (64, 40)]),
    "addmm scaled": (lambda c, a, b: torch.addmm(c, a, b, beta=0.75, alpha=1.25), [(40,), (48, 64), (64, 40)]),
    "bmm": (torch.bmm, [(3, 48, 64), (3, 64, 40)]),
    "baddbmm": (torch.baddbmm, [(3, 48, 40), (3, 48, 64), (3, 64, 40)]),
    "linear": (F.linear, [(4, 16, 64), (40, 64), (40,)]),
    "conv": (convolution, [(2, 16, 12, 12), (8, 16, 3, 3)]),
    "conv strided": (lambda x, w: convolution(x, w, 2), [(2, 16, 13, 13), (8, 16, 3, 3)]),
    "conv depthwise": (lambda x, w: convolution(x, w, 1, 16), [(2, 16, 12, 12), (16, 1, 3, 3)]),
    "conv1d": (F.conv1d, [(2, 16, 40), (8, 16, 5)]),
    "conv3d": (F.conv3d, [(1, 4, 6, 6, 6), (4, 4, 3, 3, 3)]),
}  # fmt: skip
# Autograd multiplies by alpha in a step of its own, which rounds on every device.
FORWARD_ONLY = ("addmm scaled",)


def units_off(got, exact, terms, dtype):
    """The worst distance from float64 in units in the last place, beyond what float32 may be off."""
    got, exact = got.detach().cpu().double(), exact.double()
    unit = torch.exp2(torch.frexp(exact)[1].double() - 1 - BITS[dtype]).clamp(min=2.0**-24)
    beyond = ((got - exact).abs() - FLOAT32 * terms).clamp(min=0)
    return (beyond / unit).max().item()


def far_from_float64(name, dtype):
    """Of the results and of every gradient."""
    judged = None if name not in FORWARD_ONLY else 1
    fn, sizes = PRODUCTS[name]
    tensors = [randn(*s, dtype=dtype) for s in sizes]
    exact, sizes_of = [t.double() for t in tensors], [t.double().abs() for t in tensors]
    want = fn(*exact)
    grad = randn(*want.shape, dtype=dtype)
    pairs = zip(
        [fn(*(t.npu() for t in tensors)), *gradients(fn, [t.npu() for t in tensors], grad.npu())],
        [want, *gradients(fn, exact, grad.double())],
        [fn(*sizes_of), *gradients(fn, sizes_of, grad.double().abs())],
    )
    return max(units_off(*triple, dtype) for triple in list(pairs)[:judged])


def ask(code, **variables):
    """What a process prints last; the setting is read once in a process."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("MAX_CPU_ISA")}
    here = Path(__file__).parent
    where = f"import sys; sys.path[:0] = {[str(here), str(here.parent)]}\n"
    done = interpreter.run(["-c", where + code], env={**env, **variables}, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


JUDGE = """
import json, torch, torch_npu, test_half_products as t
out = {f"{n} {w}": t.far_from_float64(n, d) for n in t.PRODUCTS for w, d in t.HALVES.items()}
rows = {r["overload"]: r["wide_calls"] for r in torch.npu.fallback_stats(native=True)}
text = torch.npu.fallback_report(native=True)
print(json.dumps([out, rows, text]))
"""


@pytest.fixture(scope="module")
def cast():
    return ask(JUDGE, NPU_HALF_PRODUCTS="float32")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_one_rounding_of_the_exact_product(cast, name, dtype):
    assert cast[0][f"{name} {dtype}"] <= 0.5


def test_casts_are_counted_and_reported(cast):
    _, rows, text = cast
    for operator in ("mm", "addmm", "bmm", "baddbmm"):
        assert sum(n for key, n in rows.items() if key.startswith(f"aten::{operator}")) > 0, rows
    assert rows["aten::convolution_overrideable"] > 0
    assert rows["aten::convolution_backward_overrideable"] > 0
    assert "in a wider dtype" in text


ASK = program(__file__, "_ask")
CAST = {"large": 1, "batch": 1, "small": 0, "few rows": 0, "outer": 0, "conv": 1, "attention": 2,
        "float32": 0, "without oneDNN": 1}  # fmt: skip


def test_an_imitated_cpu_without_the_instructions():
    for wide, why, seen in ask(ASK, ONEDNN_MAX_CPU_ISA="avx512_core").values():
        assert wide and ("limited to AVX512_CORE" in why or "the CPU has no" in why)
        assert seen == CAST


def test_the_settings_decide():
    for wide, why, seen in ask(ASK, NPU_HALF_PRODUCTS="cpu").values():
        assert (wide, why) == (False, "NPU_HALF_PRODUCTS=cpu")
        assert set(seen.values()) == {0}
    for wide, why, seen in ask(ASK, NPU_HALF_PRODUCTS="float32").values():
        assert (wide, why) == (True, "NPU_HALF_PRODUCTS=float32")
        assert seen == CAST


def test_a_cpu_with_the_instructions_uses_them():
    flags = Path("/proc/cpuinfo").read_text()
    answers = ask(ASK)
    for dtype, flag in {"bfloat16": "avx512_bf16", "float16": "avx512_fp16"}.items():
        wide, why, seen = answers[dtype]
        assert wide == (flag not in flags), why
        assert (seen["large"], seen["conv"]) == (int(wide), int(wide))
        assert seen["without oneDNN"] == 1


def test_casts_take_the_devices_memory_and_give_it_back():
    code = program(__file__, "_casts_take_the_devices_memory_and_give_it_back")
    left, peak, drivers = ask(code, NPU_HALF_PRODUCTS="float32")
    elements = 4 * 8 * 64 * 64
    assert left == 0
    assert drivers[0] == drivers[-1]
    # In float32 the input, the result, and both in oneDNN's order.
    assert 10 * elements <= peak <= 17 * elements


def test_a_wrong_setting_is_refused(run_python):
    code = "import torch, torch_npu; x = torch.ones(64, 64).npu().half(); x @ x"
    done = run_python(code, check=False, NPU_HALF_PRODUCTS="fast")
    assert done.returncode == 1
    assert "NPU_HALF_PRODUCTS='fast' is not allowed. Allowed: auto, cpu, float32" in done.stderr


REFUSED = program(__file__, "_refused")


def test_calls_are_the_same_where_products_are_cast():
    """A sparse factor has kernels of its own and was left narrow beside a wide one. out= of float32 was accepted."""
    for word, (dtype, is_right, *errors) in ask(REFUSED, NPU_HALF_PRODUCTS="float32").items():
        assert (dtype, is_right) == (f"torch.{word}", True)
        name = {"float16": "c10::Half", "bfloat16": "c10::BFloat16"}[word]
        for error, wrong in zip(errors, ("float", "double", "int"), strict=True):
            assert f"Expected out tensor to have dtype {name}, but got {wrong} instead" in error
