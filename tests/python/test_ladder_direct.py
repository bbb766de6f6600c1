# SPDX-License-Identifier: Apache-2.0
"""Rung 4 without wrappers: CPU kernels on npu tensors (src/aten/host_device/direct.h) give the CPU's bits.

Calls the direct way does not know go through wrappers, so both ways are here side by side: what lies
oddly, is empty, of another dtype or refused.
"""

import functools
import itertools
import json
import math
import os
import subprocess
import sys

import pytest
import torch
from child import run_child
from ladder import OWN_ROUNDING, both_raise, npu, same
from programs import program
from torch.nn import functional as F
from wide_reference import WideReference

pytestmark = [pytest.mark.modes, pytest.mark.machines]

# With kernels of its own the driver rounds half types at other places: test_nn_adapters.py judges those.
HALVES = () if OWN_ROUNDING else (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, torch.float64, *HALVES)
# Any of these and the wrappers' way is taken.
ELSEWHERE = ("NPU_HOST_ASYNC", "NPU_HOST_PROTECT", "NPU_HOST_ACCESS", "NPU_HOST_KERNELS", "NPU_LOG")


@pytest.fixture(autouse=True, params=(1, 2))
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def alike(expected, got):
    same(expected, got)
    assert got.stride() == expected.stride()


def check(function, *tensors):
    """The function on both sides, results compared to the bit; gradients too where asked for."""
    with WideReference():  # some operators of half types are computed in float32
        expected = function(*(t.detach() for t in tensors))
    got = function(*(on_npu(t.detach()) for t in tensors))
    if isinstance(expected, torch.Tensor):
        expected, got = [expected], [got]
    for a, b in zip(expected, got, strict=True):
        alike(a, b)


def on_npu(tensor):
    """With the strides and offset it has."""
    size = tensor.untyped_storage().nbytes() // tensor.itemsize
    flat = torch.as_strided(tensor, (size,), (1,), 0).to("npu")
    return torch.as_strided(flat, tensor.shape, tensor.stride(), tensor.storage_offset())


def layouts(rows, columns, dtype, seed):
    """The same sizes as they may lie: rows, columns, with gaps, apart, and where no row is dense."""
    values = npu(rows, columns, dtype=dtype, seed=seed)[0]
    yield values
    yield values.t().contiguous().t()
    wide = torch.zeros(rows, columns + 3, dtype=dtype)
    wide[:, 1 : columns + 1] = values
    yield wide[:, 1 : columns + 1]
    apart = torch.zeros(rows, 2 * columns, dtype=dtype)
    apart[:, ::2] = values
    yield apart[:, ::2]
    yield values[:1].expand(rows, columns)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (1, 16, 16), (4, 16, 1), (5, 1, 7), (33, 17, 65)])
def test_products(m, k, n, dtype):
    bias = npu(n, dtype=dtype, seed=3)[0]
    full = npu(m, n, dtype=dtype, seed=4)[0]
    for a, b in itertools.product(layouts(m, k, dtype, 1), layouts(k, n, dtype, 2)):
        check(torch.mm, a, b)
        check(torch.addmm, bias, a, b)
    a, b = npu(m, k, dtype=dtype, seed=1)[0], npu(k, n, dtype=dtype, seed=2)[0]
    for self in (full, full.t().contiguous().t(), full[:, :1], full[:1], bias[0], bias[:1]):
        check(torch.addmm, self, a, b)
        for beta, alpha in ((0, 1), (1, 0), (0.5, -2), (2, 3.25)):
            check(functools.partial(torch.addmm, beta=beta, alpha=alpha), self, a, b)


def test_products_of_other_kinds():
    for sizes in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        m, k, n = sizes
        check(torch.mm, torch.ones(m, k), torch.ones(k, n))
        check(torch.addmm, torch.ones(n), torch.ones(m, k), torch.ones(k, n))
    whole = torch.arange(12).reshape(3, 4)
    check(torch.mm, whole, whole.t())
    wave = torch.randn(3, 4, dtype=torch.complex64)
    check(lambda a: torch.mm(a, a.mH), wave)
    check(lambda a: torch.addmm(a[0].conj(), a.t(), a, beta=2j), wave[:, :3])
    nan = torch.full((3,), float("nan"))
    check(lambda s, a: torch.addmm(s, a, a, beta=0), nan, torch.eye(3))
    check(lambda s, a: torch.addmm(s, a, a, alpha=0), nan, torch.eye(3))


def test_products_that_the_cpu_refuses():
    for make in (
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)),
        lambda d: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d).double()),
        lambda d: torch.mm(torch.ones(2, 2, device=d), torch.ones(2, device=d)),
        lambda d: torch.addmm(torch.ones(3, device=d), *[torch.ones(2, 2, device=d)] * 2),
        lambda d: torch.addmm(torch.ones(2, device=d).double(), *[torch.ones(2, 2, device=d)] * 2),
        lambda d: torch.sum(torch.ones(2, 2, device=d), dim=(0, 0)),
        lambda d: torch.sum(torch.ones(2, 2, device=d), dim=2),
        lambda d: torch.softmax(torch.ones(2, 2, device=d), dim=2),
        lambda d: torch.mean(torch.ones(2, 2, device=d), dim=-3),
    ):
        both_raise(lambda make=make: make("cpu"), lambda make=make: make("npu"))


def test_a_large_product_is_begun_by_all_threads():
    x, weight, bias = npu(300, 64)[0], npu(700, 64, seed=1)[0], npu(700, seed=2)[0]
    check(F.linear, x, weight, bias)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int32, torch.int64, torch.bool), ids=str)
@pytest.mark.parametrize(
    "shape", [(), (1,), (64,), (4, 16), (3, 1, 5), (33, 65), (0, 3), (2, 3, 4, 5)]
)
def test_sums(shape, dtype):
    count = math.prod(shape)
    values = npu(count, seed=5)[0].mul(3).to(dtype).reshape(shape)
    check(torch.sum, values)
    check(lambda v: torch.sum(v, dtype=torch.float64), values)
    dims = [d for n in range(len(shape) + 1) for d in itertools.combinations(range(len(shape)), n)]
    shuffled = values.permute(tuple(reversed(range(len(shape)))))
    for tensor in (values, shuffled, values[..., ::2] if shape else values):
        for dim, keepdim in itertools.product(dims, (False, True)):
            check(functools.partial(torch.sum, dim=dim, keepdim=keepdim), tensor)
            if dtype.is_floating_point:
                check(functools.partial(torch.mean, dim=dim, keepdim=keepdim), tensor)
    if dtype.is_floating_point:
        check(torch.mean, values)
        check(lambda v: torch.mean(v, dtype=torch.float64), values)


def test_sum_of_an_expanded_tensor():
    check(lambda v: v.expand(7, 5, 3).sum((0, 2)), npu(5, 1)[0])
    check(lambda v: v.sum((0, 1)), npu(1, 1, 6)[0])


UNARY = (
    *("erf", "erfc", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "rsqrt", "sigmoid"),
    *("sin", "cos", "sqrt", "tan", "tanh"),
)
BINARY = {
    "add": lambda a, b: torch.add(a, b, alpha=2),
    "mul": torch.mul,
    "div": torch.div,
    "sigmoid_backward": torch.ops.aten.sigmoid_backward,
    "silu_backward": torch.ops.aten.silu_backward,
    "tanh_backward": torch.ops.aten.tanh_backward,
}
NUMBERS = (*FLOATS, torch.complex64, torch.int32, torch.bool)


def supported(function, *tensors):
    try:
        function(*tensors)
    except RuntimeError:
        return False
    return True


def shapes(dtype, seed):
    """Contiguous, turned, with gaps, expanded, of one element, of none; more than a vector's length."""
    values = npu(37, 70, seed=seed)[0].mul(3).to(dtype)
    yield from (values, values.t(), values[:, ::3], values[:1].expand(5, 70), values[0, 0])
    yield from (values[:0], values.reshape(2, 5, 7, 37).permute(2, 0, 3, 1))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_elementwise(dtype):
    if dtype in HALVES and "NPU_DISABLE_KIND" not in os.environ:
        pytest.skip("the driver has kernels of its own: below without them")
    for name in (*UNARY, "silu"):
        function = F.silu if name == "silu" else getattr(torch, name)
        for x in shapes(dtype, 6):
            if supported(function, x):
                check(function, x)
            else:
                both_raise(lambda f=function, x=x: f(x), lambda f=function, x=x: f(on_npu(x)))


@pytest.mark.parametrize("name", BINARY)
def test_elementwise_of_two(name):
    function = BINARY[name]
    for dtype in NUMBERS:
        for a, b in zip(shapes(dtype, 7), shapes(dtype, 8)):
            if supported(function, a, b):
                check(function, a, b)
    row, column = npu(5)[0], npu(4, 1, seed=1)[0]
    check(function, row, column)
    if not name.endswith("backward"):
        check(function, row, column.double())
        check(function, row, torch.tensor(3))
        check(lambda a: function(a, 2.5), row)
        check(function, row.to(torch.int32), column.to(torch.int64))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 16), (3, 5, 33), (0, 4)])
def test_softmax(shape, dtype):
    x = npu(math.prod(shape), dtype=dtype)[0].reshape(shape)
    grad = npu(math.prod(shape), dtype=dtype, seed=1)[0].reshape(shape)
    ops = torch.ops.aten
    pairs = (
        (ops._softmax, ops._softmax_backward_data),
        (ops._log_softmax, ops._log_softmax_backward_data),
    )
    turned = [t.transpose(0, -1).contiguous().transpose(0, -1) if shape else t for t in (x, grad)]
    for (forward, back), dim in itertools.product(pairs, range(max(1, len(shape)))):

        def run(x, grad, forward=forward, back=back, dim=dim):
            out = forward(x, dim, False)
            return out, back(grad, out, dim, x.dtype)

        check(run, x, grad)
        check(run, *turned)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, tail", [((4,), 1), ((3, 16), 1), ((2, 5, 33), 1), ((2, 3, 4), 2)])
def test_layer_norm(shape, tail, dtype):
    x = npu(*shape, dtype=dtype)[0]
    grad = npu(*shape, dtype=dtype, seed=1)[0]
    size = shape[-tail:]
    w, b = npu(*size, dtype=dtype, seed=2)[0], npu(*size, dtype=dtype, seed=3)[0]
    odd = x.transpose(0, -1).contiguous().transpose(0, -1)
    for weight, bias, value in ((w, b, x), (None, None, x), (w, None, odd), (None, b, x)):
        given = [t for t in (value, grad, weight, bias) if t is not None]

        def run(value, grad, *rest, weight=weight, bias=bias):
            rest = list(rest)
            weight = rest.pop(0) if weight is not None else None
            bias = rest.pop(0) if bias is not None else None
            out = torch.native_layer_norm(value, size, weight, bias, 1e-5)
            mask = [True, weight is not None, bias is not None]
            back = torch.ops.aten.native_layer_norm_backward
            # Beside halves statistics are float32 here, and rounded on the CPU.
            stats = [t.to((value if weight is None else weight).dtype) for t in out[1:]]
            grads = back(grad, value, size, *stats, weight, bias, mask)
            some = back(grad, value, size, *stats, weight, bias, [False, *mask[1:]])
            return [t for t in (out[0], *stats, *grads, *some) if t is not None]

        check(run, *given)


def test_layer_norm_of_nothing_and_of_two_dtypes():
    for shape in ((0, 4), (3, 0)):
        check(
            lambda x: torch.native_layer_norm(x, x.shape[1:], None, None, 1e-5), torch.ones(shape)
        )
    half = npu(3, 8, dtype=torch.bfloat16)[0]
    wide = npu(8)[0]
    check(lambda x, w: torch.native_layer_norm(x, (8,), w, w, 1e-5), half, wide)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("masked", (False, True))
@pytest.mark.parametrize("rows, keys", [(1, 1), (1, 9), (32, 32), (70, 33)])
def test_attention(rows, keys, masked, dtype):
    q = npu(2, 3, rows, 16, dtype=dtype)[0]
    k, v = npu(2, 3, keys, 16, dtype=dtype, seed=1)[0], npu(2, 3, keys, 16, dtype=dtype, seed=2)[0]
    grad = npu(2, 3, rows, 16, dtype=dtype, seed=3)[0]
    mask = npu(rows, keys, dtype=dtype, seed=4)[0] if masked else None
    swap = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v, grad)]

    def run(q, k, v, grad, mask=None):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        out = F.scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=mask is None)
        out.backward(grad)
        # Gradients lie as the operands do, the CPU's with rows before heads.
        return [
            out.detach(),
            *(t.grad.clone(memory_format=torch.contiguous_format) for t in leaves),
        ]

    for tensors in ((q, k, v, grad), swap):
        check(run, *tensors, *(() if mask is None else (mask,)))


def test_attention_of_grouped_heads_and_scale():
    q, k = npu(1, 4, 5, 8)[0], npu(1, 2, 5, 8, seed=1)[0]
    attend = F.scaled_dot_product_attention
    check(lambda q, k: attend(q, k, k, enable_gqa=True), q, k)
    check(lambda q: attend(q, q, q, scale=0.3), q)
    check(lambda q: attend(q, q, q, attn_mask=torch.ones_like(q[0, :, :, :5]).bool()), q)


def operators_inside(call):
    """Names of the operators that the call's kernel called in turn."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.name for event in profile.events()}


@pytest.mark.skipif(any(os.environ.get(n) for n in ELSEWHERE), reason="the wrappers' way")
def test_nothing_is_copied_or_counted_inside():
    x, w, b = npu(4, 16)[1], npu(16, 16)[1], npu(16)[1]
    q = npu(1, 2, 8, 16)[1]
    calls = {
        "aten::mm": lambda: torch.mm(x, w),
        "aten::addmm": lambda: torch.addmm(b, x, w.t()),
        "aten::sum": lambda: torch.sum(x, 0),
        "aten::mean": lambda: torch.mean(x),
        "aten::native_layer_norm": lambda: torch.native_layer_norm(x, (16,), b, b, 1e-5),
        "aten::scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q),
    }
    for name, call in calls.items():
        inside = operators_inside(call)
        assert name in inside
        # Wrapped kernels call these on CPU tensors.
        assert not inside & {"aten::copy_", "aten::expand", "aten::empty_like", "aten::div_"}, name


def test_elementwise_without_the_drivers_kernels():
    if torch.get_num_threads() == 2 or "NPU_DISABLE_KIND" in os.environ:
        pytest.skip("once is enough")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    env = {**os.environ, "NPU_DISABLE_KIND": "unary,binary"}
    done = subprocess.run(
        [*command, "-k", "elementwise and not 2-"],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]


REPORT = program(__file__, "_report")


@pytest.mark.skipif(any(os.environ.get(n) for n in ELSEWHERE), reason="the wrappers' way")
def test_calls_are_counted_as_wrapped_ones(threads):
    if torch.get_num_threads() == 2:
        pytest.skip("once is enough")
    direct = json.loads(run_child(REPORT))
    wrapped = json.loads(run_child(REPORT, NPU_HOST_PROTECT="1"))
    assert direct == wrapped
    assert ["aten::mm", "4", "3", "4608"] in direct
