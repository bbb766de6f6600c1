# SPDX-License-Identifier: Apache-2.0
"""Random operators: PyTorch's meaning, our generator, and none left to CPU's."""

import math

import pytest
import torch
from programs import program

pytestmark = pytest.mark.modes

N = 20000


def tagged():
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            packet = getattr(torch.ops.aten, schema.name[6:])
            overload = getattr(packet, schema.overload_name or "default")
            if torch.Tag.nondeterministic_seeded in overload.tags:
                yield str(overload).removeprefix("aten.").removesuffix(".default")


# Never reached from the public API on npu: of other vendors' libraries, or chosen by a device test.
REFUSED = {
    "_cudnn_attention_backward",
    "_cudnn_attention_forward",
    "_cudnn_init_dropout_state",
    "_cudnn_rnn",
    "_efficient_attention_forward",
    "_fill_mem_eff_dropout_mask_",
    "_flash_attention_forward",
    "_flash_attention_forward.quantized",
    "_flash_attention_forward_no_dropout_inplace",
    "_lstm_mps",
    "_nested_tensor_softmax_with_shape",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention.quantized",
    "_triton_scaled_dot_attention",
    "miopen_rnn",
}
# CPU's own kernel: it refuses dropout, so it draws nothing.
DRAWS_NOTHING = {"_scaled_dot_product_flash_attention_for_cpu"}
COMPOSITE = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)


def test_no_seeded_operator_is_left_to_the_cpu_generator():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    table = {}
    for name in tagged():
        op = f"aten::{name}"
        if name in DRAWS_NOTHING:
            table[name] = "draws nothing"
        elif any(has(op, key) for key in COMPOSITE) and not has(op, "CPU"):
            table[name] = "composite"
        elif has(op, "PrivateUse1"):
            table[name] = "implemented"
        elif not has(op, "CPU"):
            table[name] = "refused"
        else:
            table[name] = "left to CPU"
    assert [n for n, how in table.items() if how == "left to CPU"] == []
    # Later versions of torch may bring new ones: they must be thought about.
    assert {n for n, how in table.items() if how == "refused"} <= REFUSED
    assert "implemented" in table.values() and len(table) > 100


def test_refused_operators_name_the_device():
    q = torch.ones(1, 1, 4, 8, device="npu")
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)npu|PrivateUse1"):
        torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, False)


FILLS = {
    "uniform_": (lambda x, g: x.uniform_(-1, 3, generator=g), 1.0, 4 / math.sqrt(12)),
    "normal_": (lambda x, g: x.normal_(2, 3, generator=g), 2.0, 3.0),
    "exponential_": (lambda x, g: x.exponential_(2, generator=g), 0.5, 0.5),
    "geometric_": (lambda x, g: x.geometric_(0.25, generator=g), 4.0, math.sqrt(0.75) / 0.25),
    "log_normal_": (lambda x, g: x.log_normal_(0, 0.5, generator=g), math.exp(0.125), None),
    "bernoulli_": (lambda x, g: x.bernoulli_(0.3, generator=g), 0.3, math.sqrt(0.21)),
    "bernoulli_.Tensor": (
        lambda x, g: x.bernoulli_(torch.tensor(0.3).npu(), generator=g),
        0.3,
        None,
    ),
    "random_.to": (lambda x, g: x.random_(101, generator=g), 50.0, math.sqrt((101**2 - 1) / 12)),
    "random_.from": (lambda x, g: x.random_(10, 20, generator=g), 14.5, math.sqrt(99 / 12)),
    "cauchy_": (lambda x, g: x.cauchy_(1, 2, generator=g), None, None),
}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("name", FILLS)
def test_distributions(name, dtype):
    fill, mean, deviation = FILLS[name]
    before = torch.get_rng_state()
    g = torch.Generator("npu").manual_seed(7)
    x = fill(torch.empty(N, dtype=dtype, device="npu"), g).cpu().double()
    assert torch.get_rng_state().equal(before)
    assert x.isfinite().all() or name in ("cauchy_", "exponential_")
    if name == "cauchy_":
        assert abs(x.median().item() - 1) < 0.15
    else:
        spread = deviation or x.std().item()
        assert abs(x.mean().item() - mean) < 6 * spread / math.sqrt(N) + 0.01 * abs(mean)
    if deviation:
        assert abs(x.std().item() / deviation - 1) < 0.1


@pytest.mark.parametrize("name", FILLS)
def test_seeds_decide(name):
    fill = FILLS[name][0]

    def draw(seed):
        return fill(torch.empty(500, device="npu"), torch.Generator("npu").manual_seed(seed)).cpu()

    assert draw(3).equal(draw(3)) and not draw(3).equal(draw(4))
    torch.npu.manual_seed(5)
    a = fill(torch.empty(500, device="npu"), None)
    b = fill(torch.empty(500, device="npu"), None)
    torch.npu.manual_seed(5)
    assert fill(torch.empty(500, device="npu"), None).equal(a) and not a.equal(b)


@pytest.mark.parametrize("name", FILLS)
def test_any_layout_and_only_its_elements(name):
    fill = FILLS[name][0]
    g = lambda: torch.Generator("npu").manual_seed(3)  # noqa: E731
    plain = fill(torch.empty(6, 4, device="npu"), g())
    base = torch.full((6, 8), -99.0, device="npu")
    fill(base[:, ::2], g())
    assert base[:, ::2].equal(plain) and base[:, 1::2].eq(-99).all()
    # Dense memory is filled in its own order.
    assert fill(torch.empty(4, 6, device="npu").t(), g()).t().flatten().equal(plain.flatten())
    assert fill(torch.empty(0, 3, device="npu"), g()).shape == (0, 3)
    with pytest.raises(RuntimeError, match=r"single memory location|more than one element"):
        fill(torch.empty(1, device="npu").expand(4), g())


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype):
    info = torch.iinfo(dtype)
    x = torch.empty(N, dtype=dtype, device="npu").random_().cpu()
    assert x.min() >= 0 and x.double().mean() == pytest.approx(info.max / 2, rel=0.03)
    x = torch.empty(N, dtype=dtype, device="npu").random_(-3 if info.min else 1, 3).cpu()
    assert x.unique().tolist() == list(range(-3 if info.min else 1, 3))
    x = torch.empty(1000, dtype=dtype, device="npu").geometric_(0.5).cpu()
    assert x.min() == 1
    x = torch.empty(1000, dtype=dtype, device="npu").bernoulli_(0.5).cpu()
    assert x.unique().tolist() == [0, 1]


def test_integer_ranges_wider_than_a_word():
    x = torch.empty(N, dtype=torch.int64, device="npu").random_(-(2**40), 2**50).cpu()
    assert x.min() < 0 and x.max() > 2**49
    x = torch.empty(N, dtype=torch.int64, device="npu").random_(-(2**63), None).cpu()
    assert x.min() < -(2**61) and x.max() > 2**61
    assert torch.empty(100, dtype=torch.bool, device="npu").random_().cpu().unique().numel() == 2
    assert torch.randint(5, 9, (1000,), device="npu").cpu().unique().tolist() == [5, 6, 7, 8]


def test_composites_follow():
    g = torch.Generator("npu").manual_seed(1)
    for make in (
        lambda: torch.rand(5, device="npu", generator=g),
        lambda: torch.randn(5, device="npu", generator=g),
        lambda: torch.randint(100, (5,), device="npu", generator=g),
        lambda: torch.rand_like(torch.empty(5, device="npu")),
        lambda: torch.normal(0.0, 1.0, (5,), device="npu", generator=g),
        lambda: torch.bernoulli(torch.full((5,), 0.5, device="npu"), 0.5, generator=g),
        lambda: torch.nn.init.kaiming_uniform_(torch.empty(5, 5, device="npu")),
        lambda: torch.nn.init.trunc_normal_(torch.empty(5, 5, device="npu")),
    ):
        state = torch.get_rng_state()
        assert make().device.type == "npu"
        assert torch.get_rng_state().equal(state)


def test_complex_numbers():
    z = torch.randn(N, dtype=torch.complex64, device="npu").cpu()
    assert z.real.std() == pytest.approx(math.sqrt(0.5), rel=0.05)
    assert z.imag.mean().abs() < 0.03
    assert torch.rand(10, dtype=torch.complex64, device="npu").cpu().imag.min() >= 0


def test_normal_with_tensors():
    mean = torch.tensor([0.0, 100.0], device="npu")
    std = torch.tensor([1.0, 0.0], device="npu")
    big = mean.expand(N, 2)
    for x in (
        torch.normal(big, 1.0),
        torch.normal(big, std.expand(N, 2)),
        torch.normal(0.0, std.expand(N, 2)),
    ):
        assert x.shape == (N, 2) and abs(x[:, 0].mean().item()) < 0.05
    assert torch.normal(big, std.expand(N, 2))[:, 1].eq(100).all()
    out = torch.empty(0, device="npu")
    assert torch.normal(mean, std, out=out) is out and out[1].item() == 100
    for bad in (lambda: torch.normal(mean, -1.0), lambda: torch.normal(0.0, -std - 1)):
        with pytest.raises(RuntimeError, match=r"std >= 0.0"):
            bad()


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32], ids=str)
def test_randperm(n, dtype):
    x = torch.randperm(n, dtype=dtype, device="npu")
    assert x.cpu().sort().values.equal(torch.arange(n, dtype=dtype))
    if n > 100:
        assert not x.equal(torch.randperm(n, dtype=dtype, device="npu"))


def test_multinomial():
    weights = torch.tensor([[0.0, 3.0, 1.0], [1.0, 0.0, 0.0]], device="npu")
    x = torch.multinomial(weights, N, replacement=True).cpu()
    assert x.shape == (2, N) and x[0].min() == 1 and x[1].eq(0).all()
    assert x[0].eq(1).double().mean() == pytest.approx(0.75, abs=0.02)
    y = torch.stack([torch.multinomial(weights[0], 2) for _ in range(50)]).cpu()
    assert y.sort(1).values.equal(torch.tensor([[1, 2]]).expand(50, 2))
    out = torch.empty(0, dtype=torch.long, device="npu")
    assert torch.multinomial(weights, 1, out=out) is out and out.shape == (2, 1)
    strided = torch.zeros(2, 2, dtype=torch.long, device="npu")[:, :1]
    assert torch.multinomial(weights, 1, out=strided)[1, 0].item() == 0
    assert torch.multinomial(weights.half(), 1).dtype == torch.long


def test_dropout():
    x = torch.ones(N, device="npu").requires_grad_()
    torch.npu.manual_seed(0)
    before = torch.get_rng_state()
    y = torch.nn.functional.dropout(x, 0.25)
    assert torch.get_rng_state().equal(before)
    kept = y.ne(0)
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(y[kept].detach().cpu(), torch.full((int(kept.sum()),), 4 / 3))
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
    assert torch.nn.functional.dropout(x, 1.0).eq(0).all()
    assert torch.nn.functional.dropout(x, 0.0).equal(x)
    assert torch.nn.functional.dropout(x, 0.5, training=False) is x
    out, mask = torch.native_dropout(x.detach(), 0.5, True)
    assert mask.dtype == torch.bool and out.ne(0).equal(mask)
    out, mask = torch.native_dropout(x.detach(), 0.5, False)
    assert out.equal(x) and mask.all()
    strided = torch.ones(64, 64, device="npu").t()[::2]
    out, mask = torch.native_dropout(strided, 0.5, True)
    assert out.ne(0).equal(mask)
    out, mask = torch.native_dropout(torch.ones(64, dtype=torch.complex64, device="npu"), 0.5, True)
    assert out.ne(0).equal(mask)
    kept, mask = torch._fused_dropout(x.detach(), 0.9)
    assert mask.dtype == torch.uint8 and mask.double().mean().item() == pytest.approx(0.9, abs=0.02)
    for layer in (torch.nn.AlphaDropout(), torch.nn.Dropout2d(), torch.nn.FeatureAlphaDropout()):
        assert layer(torch.ones(2, 3, 4, 4, device="npu")).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_dropout_in_place_drops_what_dropout_drops(dtype):
    functional = torch.nn.functional
    for x in (
        torch.rand(50, 60, device="npu", dtype=dtype) + 1,
        torch.rand(60, 50, device="npu", dtype=dtype).t(),
        torch.rand((), device="npu", dtype=dtype) + 1,
        torch.empty(0, 3, device="npu", dtype=dtype),
    ):
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        results = []
        for leaf, inplace in zip(leaves, (False, True), strict=True):
            torch.npu.manual_seed(7)
            results.append(functional.dropout(leaf * 1, 0.4, inplace=inplace))
            results[-1].abs().sum().backward()
        assert results[0].equal(results[1])
        assert leaves[0].grad.equal(leaves[1].grad)
    x = torch.rand(N, device="npu", dtype=dtype)
    assert functional.dropout(x.clone(), 0.0, inplace=True).equal(x)
    assert functional.dropout(x.clone(), 0.4, training=False, inplace=True).equal(x)
    assert not functional.dropout(x.clone(), 1.0, inplace=True).any()
    with pytest.raises(RuntimeError, match="more than one element"):
        functional.dropout(torch.ones(1, device="npu", dtype=dtype).expand(4), 0.4, inplace=True)


def test_rejection_kinds():
    rate = torch.full((N,), 4.0, device="npu")
    assert torch.poisson(rate).mean().item() == pytest.approx(4, abs=0.1)
    assert torch._standard_gamma(rate).var().item() == pytest.approx(4, abs=0.4)
    x = torch.binomial(torch.full((N,), 10.0, device="npu"), torch.tensor([0.3], device="npu"))
    assert x.mean().item() == pytest.approx(3, abs=0.1)
    x = torch._sample_dirichlet(torch.tensor([1.0, 3.0], device="npu").expand(N, 2))
    torch.testing.assert_close(x.sum(1).cpu(), torch.ones(N))
    assert x[:, 1].mean().item() == pytest.approx(0.75, abs=0.02)
    alpha = torch.ones(3, device="npu", requires_grad=True)
    torch.distributions.Dirichlet(alpha).rsample().sum().backward()
    assert alpha.grad is not None


def test_rrelu():
    x = torch.tensor([-1.0, 2.0, -3.0] * 1000, device="npu")
    noise = torch.empty_like(x)
    y = torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.3, True)
    slope = (y / x)[x < 0]
    assert slope.min() >= 0.1 and slope.max() < 0.3 and slope.std() > 0.01
    assert y[x > 0].equal(x[x > 0]) and noise[x > 0].eq(1).all()
    assert torch.nn.functional.rrelu(x).cpu().equal(torch.nn.functional.rrelu(x.cpu()))
    z = x.clone().requires_grad_()
    out = torch.nn.functional.rrelu(z, training=True)
    out.sum().backward()
    torch.testing.assert_close(z.grad * x, out.detach())
    w = x.clone()
    torch.nn.functional.rrelu_(w, training=True)
    assert w[x > 0].equal(x[x > 0])


nan, inf = float("nan"), float("inf")
BAD = {
    "uniform bounds": lambda d: torch.empty(3, device=d).uniform_(2, 1),
    "uniform overflow": lambda d: torch.empty(3, device=d).uniform_(-3e38, 3e38),
    "uniform type": lambda d: torch.empty(3, dtype=torch.long, device=d).uniform_(),
    "normal std": lambda d: torch.empty(3, device=d).normal_(0, -1),
    "normal type": lambda d: torch.empty(3, dtype=torch.long, device=d).normal_(),
    "log_normal std": lambda d: torch.empty(3, device=d).log_normal_(0, 0),
    "log_normal type": lambda d: torch.empty(3, dtype=torch.long, device=d).log_normal_(),
    "exponential lambda": lambda d: torch.empty(3, device=d).exponential_(0),
    "exponential type": lambda d: torch.empty(3, dtype=torch.long, device=d).exponential_(),
    "geometric p": lambda d: torch.empty(3, device=d).geometric_(0),
    "geometric type": lambda d: torch.empty(3, dtype=torch.bool, device=d).geometric_(0.5),
    "cauchy sigma": lambda d: torch.empty(3, device=d).cauchy_(0, 0),
    "cauchy type": lambda d: torch.empty(3, dtype=torch.long, device=d).cauchy_(),
    "bernoulli p": lambda d: torch.empty(3, device=d).bernoulli_(1.5),
    "bernoulli tensor": lambda d: torch.bernoulli(torch.tensor([2.0], device=d)),
    "bernoulli nan": lambda d: torch.bernoulli(torch.tensor([nan], device=d)),
    "bernoulli type": lambda d: torch.bernoulli(torch.tensor([1], device=d)),
    "bernoulli shape": lambda d: torch.empty(3, device=d).bernoulli_(torch.ones(2, device=d)),
    "random range": lambda d: torch.empty(3, dtype=torch.long, device=d).random_(3, 3),
    "random bounds": lambda d: torch.empty(3, dtype=torch.int8, device=d).random_(0, 1000),
    "random complex": lambda d: torch.empty(3, dtype=torch.complex64, device=d).random_(),
    "randperm negative": lambda d: torch.randperm(-1, device=d),
    "randperm precision": lambda d: torch.randperm(3000, dtype=torch.half, device=d),
    "randperm type": lambda d: torch.randperm(4, dtype=torch.bool, device=d),
    "multinomial none": lambda d: torch.multinomial(torch.ones(2, device=d), 0),
    "multinomial many": lambda d: torch.multinomial(torch.ones(2, device=d), 3),
    "multinomial type": lambda d: torch.multinomial(torch.ones(2, device=d).long(), 1),
    "multinomial negative": lambda d: torch.multinomial(torch.tensor([-1.0, 2], device=d), 1),
    "multinomial zero": lambda d: torch.multinomial(torch.zeros(2, device=d), 1, True),
    "multinomial inf": lambda d: torch.multinomial(torch.tensor([inf, 2], device=d), 1, True),
    "multinomial dims": lambda d: torch.multinomial(torch.ones(2, 2, 2, device=d), 1),
    "multinomial out": lambda d: torch.multinomial(
        torch.ones(2, device=d), 1, out=torch.empty(1, device=d)
    ),
    "poisson negative": lambda d: torch.poisson(torch.tensor([-1.0], device=d)),
    "poisson type": lambda d: torch.poisson(torch.tensor([1], device=d)),
    "gamma type": lambda d: torch._standard_gamma(torch.tensor([1], device=d)),
    "dirichlet type": lambda d: torch._sample_dirichlet(torch.tensor([1], device=d)),
    "binomial type": lambda d: torch.binomial(
        torch.tensor([3], device=d), torch.tensor([0.5], device=d)
    ),
    "binomial mix": lambda d: torch.binomial(
        torch.tensor([3.0], device=d), torch.tensor([0.5], device=d).double()
    ),
    "dropout p": lambda d: torch.native_dropout(torch.ones(3, device=d), 1.5, True),
    "dropout type": lambda d: torch.native_dropout(
        torch.ones(3, dtype=torch.long, device=d), 0.5, True
    ),
    "rrelu noise": lambda d: torch.ops.aten.rrelu_with_noise(
        torch.ones(3, device=d), torch.ones(2, device=d), 0.1, 0.3, True
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_raise_as_on_cpu(name):
    with pytest.raises(Exception) as on_cpu:
        BAD[name]("cpu")
    with pytest.raises(on_cpu.type) as on_npu:
        BAD[name]("npu")
    line = lambda e: str(e.value).splitlines()[0].replace("_cpu", "_npu").split("  (Could")[0]  # noqa: E731
    assert line(on_npu)[:40] == line(on_cpu)[:40]


def test_a_generator_of_another_device_is_refused():
    for bad in (torch.Generator(), torch.Generator("cpu")):
        with pytest.raises(RuntimeError, match=r"(?i)generator"):
            torch.empty(3, device="npu").normal_(generator=bad)


def test_the_numbers_do_not_depend_on_the_driver(run_python):
    code = program(__file__, "_the_numbers_do_not_depend_on_the_driver")
    host = run_python(code).stdout
    assert run_python(code, NPU_DRIVER="null").stdout == host
    off = "random,randperm,multinomial,dropout"
    assert run_python(code, NPU_DISABLE_KIND=off).stdout == host
    assert run_python(code, NPU_DISABLE_KIND=off, NPU_HOST_ACCESS="none").stdout == host
    assert run_python(code, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="500").stdout == host
