# SPDX-License-Identifier: Apache-2.0
"""torch._foreach_*: against the CPU, in one call where the lists allow it."""

import pytest
import torch
from programs import program

pytestmark = pytest.mark.machines

SHAPES = [(3, 5), (), (70001,), (0,), (2, 1, 4), (33,)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 "
    "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()


def make(dtype, seed=0, low=0.2, high=0.9):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(s, generator=generator) * (high - low) + low).to(dtype) for s in SHAPES]


def to_npu(value):
    if isinstance(value, torch.Tensor):
        return value.npu()
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        return [t.npu() for t in value]
    return value


def check_close(got, expected, dtype):
    # Half types are rounded once more where the CPU rounds in between.
    loose = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3}.get(dtype, 1.3e-6)
    for a, b in zip(got, expected, strict=True):
        assert a.device.type == "npu"
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b, rtol=loose, atol=1e-5 if loose > 1e-3 else 1e-6)


def check(name, dtype, *args, **kwargs):
    """Functional and in-place, with the same results as the CPU and nothing else written."""
    function = getattr(torch, f"_foreach_{name}")
    lists = [make(dtype), *args]
    expected = function(*lists, **kwargs)
    on_npu = [to_npu(a) for a in lists]
    before = [t.clone() for t in on_npu[0]]
    check_close(function(*on_npu, **kwargs), expected, dtype)
    for a, b in zip(on_npu[0], before, strict=True):
        assert torch.equal(a, b), "the functional form wrote to its input"
    in_place = getattr(torch, f"_foreach_{name}_", None)
    if in_place is not None:
        versions = [t._version for t in on_npu[0]]
        in_place(*on_npu, **kwargs)
        check_close(on_npu[0], expected, dtype)
        assert [t._version for t in on_npu[0]] == [v + 1 for v in versions]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    check(name, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow"]
)
def test_binary(name, dtype):
    check(name, dtype, make(dtype, 1))
    check(name, dtype, 0.75)
    check(name, dtype, 2)
    check(name, dtype, [0.25 * (i + 1) for i in range(len(SHAPES))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_alpha(dtype):
    check("add", dtype, make(dtype, 1), alpha=-0.5)
    check("sub", dtype, make(dtype, 1), alpha=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_tensor_scalar(name, dtype):
    check(name, dtype, torch.tensor(1.5, dtype=dtype))
    on_host = torch.tensor(1.5)
    function = getattr(torch, f"_foreach_{name}")
    expected = function(make(dtype), on_host)
    check_close(function(to_npu(make(dtype)), on_host), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight", [0.1, 0.9])
def test_lerp(dtype, weight):
    check("lerp", dtype, make(dtype, 1), weight)
    check("lerp", dtype, make(dtype, 1), [weight / (i + 1) for i in range(len(SHAPES))])
    check("lerp", dtype, make(dtype, 1), make(dtype, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_ternary(name, dtype):
    lists = make(dtype, 1), make(dtype, 2)
    check(name, dtype, *lists, 0.5)
    check(name, dtype, *lists, [0.1 * i for i in range(len(SHAPES))])
    function = getattr(torch, f"_foreach_{name}")
    scalars = torch.linspace(0.1, 1, len(SHAPES))
    expected = function(make(dtype), *lists, scalars)
    got = function(to_npu(make(dtype)), *map(to_npu, lists), scalars)
    check_close(got, expected, dtype)


def test_scalar_to_the_power():
    expected = torch._foreach_pow(2.0, make(torch.float32))
    check_close(torch._foreach_pow(2.0, to_npu(make(torch.float32))), expected, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, float("inf"), float("-inf")])
def test_norm(dtype, p):
    tensors = [t for t in make(dtype, low=-1) if t.numel()]
    expected = torch._foreach_norm([t.double() for t in tensors], p)
    got = torch._foreach_norm(to_npu(tensors), p)
    # CPU's sums in double are plain ones: their own error shows.
    tolerance = 1e-12 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == dtype and a.shape == ()
        torch.testing.assert_close(a.cpu(), b.to(dtype), rtol=tolerance, atol=tolerance)


def test_norm_of_an_empty_tensor_and_of_nan():
    x = torch.tensor([1.0, float("nan")])
    got = torch._foreach_norm([torch.empty(0).npu(), x.npu()], 2)
    assert got[0].item() == 0 and got[1].isnan()
    with pytest.raises(RuntimeError, match="the infinity norm on an empty tensor"):
        torch._foreach_norm([torch.empty(0).npu()], float("inf"))


def test_norm_does_not_depend_on_threads():
    x = [torch.randn(200_003).npu(), torch.randn(17).npu()]
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append(torch.stack(torch._foreach_norm(x)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_norm_with_another_dtype():
    x = make(torch.bfloat16)
    got = torch._foreach_norm(to_npu(x), 2, torch.float32)
    for a, b in zip(got, torch._foreach_norm(x, 2, torch.float32), strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_max(dtype):
    tensors = [t for t in make(dtype, low=-1) if t.numel()]
    tensors[1] = torch.full_like(tensors[1], float("-inf"))
    tensors.append(torch.tensor([1.0, float("nan"), 2.0], dtype=dtype))
    for a, b in zip(torch._foreach_max(to_npu(tensors)), map(torch.max, tensors), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_copy_clone(dtype):
    x, y = to_npu(make(dtype)), to_npu(make(dtype, 1))
    # torch 2.11 has no _foreach_clone.
    clone = getattr(torch, "_foreach_clone", lambda tensors: [t.clone() for t in tensors])
    clones = clone(x)
    torch._foreach_copy_(x, y)
    for a, b in zip(x, y, strict=True):
        assert torch.equal(a, b)
    torch._foreach_zero_(x)
    assert all(not t.any() for t in x)
    for a, b in zip(clones, make(dtype), strict=True):
        assert torch.equal(a.cpu(), b)
    wide = [t.double() for t in x]
    torch._foreach_copy_(wide, y)
    for a, b in zip(wide, y, strict=True):
        assert torch.equal(a, b.double())


def test_nan_in_minimum_and_maximum():
    nan = float("nan")
    x, y = torch.tensor([nan, 1.0, 2.0]), torch.tensor([1.0, nan, 3.0])
    for name in ("maximum", "minimum"):
        function = getattr(torch, f"_foreach_{name}")
        for a, b in (([x], [y]), ([x], 1.5), ([x], nan)):
            got = function(to_npu(a), to_npu(b))[0].cpu()
            torch.testing.assert_close(got, function(a, b)[0], equal_nan=True)


LAYOUTS = {
    "mixed dtypes": lambda: ([torch.ones(3), torch.ones(2).double()], [torch.ones(3)] * 2),
    "integers": lambda: ([torch.arange(4), torch.arange(2)], [torch.arange(4), torch.arange(2)]),
    "gaps": lambda: ([torch.ones(6, 4)[:, ::2]], [torch.full((6, 2), 2.0)]),
    "other strides": lambda: ([torch.ones(3, 4)], [torch.arange(12.0).view(4, 3).t()]),
    "broadcast": lambda: ([torch.ones(3, 4)], [torch.arange(4.0)]),
    "complex": lambda: ([torch.ones(3, dtype=torch.complex64)], [torch.ones(3)]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lists_that_go_tensor_by_tensor(layout):
    x, y = LAYOUTS[layout]()
    if layout == "mixed dtypes":
        y = [y[0], torch.ones(2)]
    for name in ("mul", "add"):
        expected = getattr(torch, f"_foreach_{name}")(x, y)
        got = getattr(torch, f"_foreach_{name}")([t.npu() for t in x], [t.npu() for t in y])
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a.cpu(), b)


def test_transposed_lists_keep_their_strides():
    x = [
        torch.arange(12.0).view(3, 4).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ]
    got = torch._foreach_mul([t.npu() for t in x], 2)
    for a, b in zip(got, x, strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b * 2)


def test_memory_that_is_shared():
    """The result is that of one tensor after the other, as on the CPU."""

    def run(device):
        base = torch.arange(8.0, device=device)
        a, b = base.clone(), base.clone()
        torch._foreach_mul_([a, a], 2)  # twice the same
        torch._foreach_add_([a, b], [b, a])  # read after it was written
        torch._foreach_add_([a, b], [a, b])  # itself
        torch._foreach_mul_([b[:4], b[4:]], 3)  # halves of one
        return a.cpu(), b.cpu()

    for got, expected in zip(run("npu"), run("cpu"), strict=True):
        assert torch.equal(got, expected)
    x = torch.zeros(8, device="npu")
    for other in ([x[2:]], x[3]):
        with pytest.raises(RuntimeError, match="single memory location"):
            torch._foreach_mul_([x[:6]], other)


def test_errors():
    x = [torch.ones(3).npu(), torch.ones(2).npu()]
    with pytest.raises(RuntimeError, match="same number of tensors, got"):
        torch._foreach_add(x, x[:1])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add([], [])
    with pytest.raises(RuntimeError, match="as scalar list"):
        torch._foreach_mul(x, [1.0])
    with pytest.raises(RuntimeError, match=r"size of tensor a .3. must match"):
        torch._foreach_add_([torch.ones(3).npu()], [torch.ones(4).npu()])


def test_gradients():
    x = [torch.randn(4, 3).requires_grad_(), torch.randn(5).requires_grad_()]
    y = [t.detach().npu().requires_grad_() for t in x]

    def loss(tensors):
        roots = torch._foreach_sqrt(torch._foreach_add(torch._foreach_mul(tensors, tensors), 1.0))
        return sum(t.sum() for t in torch._foreach_addcmul(roots, tensors, roots, 0.5))

    for a, b in zip(torch.autograd.grad(loss(y), y), torch.autograd.grad(loss(x), x), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_clip_grad_norm():
    def clipped(device):
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.zeros(n, device=device)) for n in (100, 7, 40000)]
        for i, p in enumerate(params):
            generator = torch.Generator().manual_seed(i)
            p.grad = torch.randn(p.shape, generator=generator).to(device)
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        return [norm, *(p.grad for p in params)]

    for a, b in zip(clipped("npu"), clipped("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b)


CALLS = program(__file__, "_calls")


def test_one_call_per_list(run_python):
    """The driver sees one call for each operation, whatever the number of tensors."""
    text = run_python(CALLS, ASCEND_GLOBAL_LOG_LEVEL="0", SLOG_PRINT_TO_STDOUT="1").stdout
    calls = [line for line in text.splitlines() if "run on" in line and "multi_map" in line]
    assert len(calls) == 8, text
    assert all("list f32 x 3" in line for line in calls)


def test_without_the_kind(run_python):
    """A driver that lacks it gets the same done tensor by tensor."""
    code = (
        "import torch, torch_npu\n"
        "x = [torch.full((3,), 4.0).npu(), torch.full((2, 2), 9.0).npu()]\n"
        "torch._foreach_sqrt_(x)\n"
        "assert [t.flatten()[0].item() for t in x] == [2, 3]\n"
        "assert [round(t.item()) for t in torch._foreach_norm(x, 1)] == [6, 12]\n"
    )
    run_python(code, NPU_DISABLE_KIND="multi_map,multi_reduce")


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_bits_do_not_depend_on_the_instruction_set(run_python, isa):
    code = (
        "import torch, torch_npu, hashlib\n"
        "g = torch.Generator().manual_seed(0)\n"
        "h = hashlib.sha256()\n"
        "for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):\n"
        "    x, y, z = ([(torch.rand(1003, generator=g) + 0.1).to(dtype).npu()] for _ in range(3))\n"
        "    for r in (torch._foreach_addcdiv(x, y, z, 0.3), torch._foreach_lerp(x, y, 0.7),\n"
        "              torch._foreach_rsqrt(x), torch._foreach_norm(x)):\n"
        "        h.update(r[0].double().cpu().numpy().tobytes())\n"
        "print(h.hexdigest())\n"
    )
    assert run_python(code).stdout == run_python(code, NPU_HOST_ISA=isa).stdout
