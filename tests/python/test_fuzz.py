# SPDX-License-Identifier: Apache-2.0
"""Random programs (views, operators, in-place, out=) on the CPU and on npu, compared step by step.

OPENNPU_FUZZ_EXAMPLES=5000 runs longer; OPENNPU_FUZZ_SEED=n other programs. A failure prints the
program: lines of PyTorch over `t`, the list of tensors.
"""

import os
import subprocess
import sys
import warnings

import pytest
import torch

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from wide_reference import WideReference  # noqa: E402

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
EXAMPLES = int(os.environ.get("OPENNPU_FUZZ_EXAMPLES", "2000" if FULL else "150"))
ALL_KERNELS = os.environ.get("NPU_HOST_KERNELS") == "all"
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
# What a kernel of ours may differ from the CPU's by, of the largest number around.
ROOM = {
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float64: 1e-13,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}

# Each line is a statement or an expression over t (all tensors), a, b, c (some of them), and
# numbers i, j, k drawn for the step. What it evaluates to is a new tensor.
VIEWS = (
    "a.transpose(0, -1)",
    "a[i:]",
    "a[..., ::2]",
    "a[..., j:j + k + 1]",
    "a.select(0, i)",
    "a.unsqueeze(i)",
    "a.squeeze()",
    "a.flatten()",
    "a.reshape(-1)",
    "a.view(-1)",
    "a.expand(2, *a.shape)",
    "a.diagonal()",
    "a.narrow(-1, j, 1)",
    "a.unfold(-1, 2, 1)",
    "a.movedim(0, -1)",
    "a.as_strided((2, 2), (1, 1), i)",
    "a.permute(*reversed(range(a.dim())))",
    "a.detach()",
    "a.real",
    "a.conj()",
    "a.view(torch.uint8)",
    "a.split(1, -1)[j]",
)
NEW = (
    "a + b",
    "a - 2 * b",
    "a * b",
    "a / (b + 1)",
    "a // 3",
    "a % 3",
    "a ** 2",
    "-a",
    "abs(a)",
    "a > b",
    "a == b",
    "a & b",
    "~a",
    "a.exp()",
    "a.sqrt()",
    "a.sigmoid()",
    "a.relu()",
    "torch.nn.functional.gelu(a)",
    "a.clamp(-1, 2)",
    "a.sum()",
    "a.sum(-1)",
    "a.mean(0, keepdim=True)",
    "a.amax(-1)",
    "a.argmax(-1)",
    "a.any(-1)",
    "a.cumsum(0)",
    "a.prod(-1)",
    "a.var(-1)",
    "a.norm()",
    "a.softmax(-1)",
    "a.sort(-1, stable=True)[0]",
    "a.topk(1, -1)[0]",
    "a.flip(0)",
    "a.roll(1, -1)",
    "a.tril()",
    "a.clone()",
    "a.contiguous()",
    "a.to(torch.float32)",
    "a.to(torch.int64)",
    "a.to(torch.bfloat16)",
    "a.repeat(2, *[1] * (a.dim() - 1))",
    "torch.cat([a, a], -1)",
    "torch.cat([a, b], 0)",
    "torch.stack([a, a])",
    "torch.where(a > 0, a, b)",
    "a @ a.transpose(-1, -2)",
    "a @ b",
    "a.index_select(0, torch.tensor([i], device=a.device))",
    "a[torch.tensor([0, i], device=a.device)]",
    "a[a > 0]",
    "a.nonzero()",
    "a.unique()",
    "a.gather(-1, torch.zeros_like(a, dtype=torch.int64))",
    "a.masked_fill(a > 1, 1)",
    "torch.zeros_like(a)",
    "torch.nn.functional.pad(a, (1, 2))",
    "torch.nn.functional.layer_norm(a, a.shape[-1:])",
    "torch.nn.functional.linear(a, b)",
)
IN_PLACE = (
    "a.add_(b)",
    "a.mul_(2)",
    "a.sub_(b, alpha=2)",
    "a.copy_(b)",
    "a.fill_(3)",
    "a.zero_()",
    "a.neg_()",
    "a.relu_()",
    "a.clamp_(min=0)",
    "a.masked_fill_(a > 0, 2)",
    "a.transpose_(0, -1)",
    "a.index_fill_(0, torch.tensor([i], device=a.device), 1)",
    "a.index_add_(0, torch.tensor([i], device=a.device), a[i:i + 1].clone())",
    "a.scatter_(-1, torch.zeros_like(a, dtype=torch.int64), 1)",
    "a.cumsum_(0)",
    "a[i].add_(1)",
    "a[..., j:] *= 2",
    "a[0] = b[-1]",
    "torch.add(a, b, out=c)",
    "torch.mul(a, 2, out=a)",
    "torch.exp(a, out=c)",
    "torch.sum(a, -1, out=c)",
    "torch.matmul(a, b, out=c)",
)
STEPS = VIEWS + NEW + IN_PLACE


def make(spec, device):
    """A tensor from (seed, dtype, sizes, layout), the same values on every device."""
    seed, dtype, sizes, layout = spec
    g = torch.Generator().manual_seed(seed)
    wide = [2 * s if layout == "gaps" else s for s in sizes]
    values = torch.randint(-8, 9, wide, generator=g)
    if dtype.is_floating_point or dtype.is_complex:
        values = values / 4
    elif dtype in (torch.uint8, torch.bool):
        values = values.abs() % (2 if dtype == torch.bool else 9)
    x = values.to(dtype).to(device)
    if layout == "gaps":
        return x[tuple(slice(None, None, 2) for _ in sizes)]
    return x.transpose(0, -1) if layout == "transposed" and sizes else x


def step(line, t, numbers):
    """Runs one line; a new tensor joins the list."""
    which, i, j, k = numbers
    a, b, c = (t[w % len(t)] for w in which)
    names = {"torch": torch, "t": t, "a": a, "b": b, "c": c, "i": i, "j": j, "k": k}
    try:
        code = compile(line, "step", "eval")
    except SyntaxError:
        exec(line, names)
        return
    result = eval(code, names)
    if isinstance(result, torch.Tensor) and result.numel() <= 4096:
        t.append(result)


def attempt(line, t, numbers):
    try:
        step(line, t, numbers)
    except Exception as error:
        return type(error), str(error).splitlines()[:1]
    return None


def same(expected, got):
    """None, or what differs. Kernels of ours may round differently; nothing else may."""
    if (expected.dtype, expected.shape) != (got.dtype, got.shape):
        return f"{got.dtype} {tuple(got.shape)}, CPU's {expected.dtype} {tuple(expected.shape)}"
    if expected.numel() and expected.stride() != got.stride():
        return f"strides {got.stride()}, CPU's {expected.stride()}"
    e, g = expected.detach().resolve_conj(), got.detach().cpu().resolve_conj()
    equal = (e == g) | (e.isnan() & g.isnan())
    if bool(equal.all()):
        return None
    if expected.dtype not in ROOM:
        return f"{g.tolist()}, CPU's {e.tolist()}"
    largest = e[e.isfinite()].abs().max() if bool(e.isfinite().any()) else 1.0
    near = (e - g).abs() <= ROOM[expected.dtype] * (largest + 1)
    return None if bool((equal | near).all()) else f"{g.tolist()}, CPU's {e.tolist()}"


def compare(cpu, npu, program):
    assert len(cpu) == len(npu), program
    for n, (e, g) in enumerate(zip(cpu, npu, strict=True)):
        wrong = same(e, g)
        assert wrong is None, f"t[{n}] after\n" + "\n".join(program) + f"\nis {wrong}"


specs = st.tuples(
    st.integers(0, 1000),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from(["plain", "gaps", "transposed"]),
)
small = st.integers(0, 2)
numbers = st.tuples(st.tuples(*[st.integers(0, 9)] * 3), small, small, small)
lines = st.tuples(st.sampled_from(STEPS), numbers)
programs = st.tuples(
    st.lists(specs, min_size=2, max_size=3), st.lists(lines, min_size=2, max_size=10)
)


def run_program(program):
    tensors, steps = program
    cpu = [make(spec, "cpu") for spec in tensors]
    npu = [make(spec, "npu") for spec in tensors]
    done = [f"t[{n}] = {spec}" for n, spec in enumerate(tensors)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line, chosen in steps:
            done.append(f"{line}    # a, b, c = {chosen[0]}, i, j, k = {chosen[1:]}")
            with WideReference():  # dtypes that the device has and the CPU has not
                expected = attempt(line, cpu, chosen)
            got = attempt(line, npu, chosen)
            assert (expected or [None])[0] == (got or [None])[0], (
                "\n".join(done) + f"\nnpu: {got}\nCPU: {expected}"
            )
            compare(cpu, npu, done)
            for e, g in zip(cpu, npu, strict=True):
                assert e._version == g._version, "\n".join(done) + "\nversions differ"
            align(cpu, npu)


def align(cpu, npu):
    """Later steps start from the same bits, so that rounding does not grow."""
    for e, g in zip(cpu, npu):
        if e.dtype in ROOM and not torch.equal(e.resolve_conj(), g.cpu().resolve_conj()):
            storage = torch.empty(0, dtype=torch.uint8).set_(e.untyped_storage())
            torch.empty(0, dtype=torch.uint8, device="npu").set_(g.untyped_storage()).copy_(storage)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="OPENNPU_FUZZ_SEED" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs)
def test_programs(program):
    run_program(program)


if "OPENNPU_FUZZ_SEED" in os.environ:
    test_programs = hypothesis.seed(int(os.environ["OPENNPU_FUZZ_SEED"]))(test_programs)


@pytest.mark.slow
@pytest.mark.skipif(ALL_KERNELS, reason="this is the process that has them all")
def test_programs_with_all_kernels():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    env = {**os.environ, "NPU_HOST_KERNELS": "all"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.skipif("libasan" not in os.environ.get("LD_PRELOAD", ""), reason="make test-asan-fuzz")
def test_a_byte_past_a_tensor_is_noticed():
    code = "import ctypes, torch, torch_npu; x = torch.ones(3, device='npu'); "
    code += "ctypes.memset(x.data_ptr() + {}, 0, 1); print('lived')"
    for past, noticed in ((11, False), (12, True)):
        command = [sys.executable, "-c", code.format(past)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert ("AddressSanitizer" in done.stderr) == noticed, done.stderr[-3000:]
        assert ("lived" in done.stdout) != noticed, done.stderr[-3000:]


def test_a_wrong_result_is_noticed():
    right = torch.tensor([1.0, 2.0])
    assert same(right, right.npu()) is None
    assert same(right, torch.tensor([1.0, 2.1], device="npu"))
    assert same(right, right.double().npu())
    assert same(torch.ones(2, 3), torch.ones(3, 2, device="npu").t())
    assert same(torch.tensor([1]), torch.tensor([2], device="npu"))
