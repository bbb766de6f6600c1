# SPDX-License-Identifier: Apache-2.0
"""Every operator of OpInfo alone through torch.compile: static sizes, then dynamic ones; and what
the report says about it against what strict compile does.

`make test` takes a sample; OPENNPU_TEST_FULL=1 all operators, and 500 variations of dtype and size.
"""

import os
import random
import warnings
from pathlib import Path

import pytest
import torch
import torchair
from faulty import built_driver, faulty_environment
from test_operators import NOT_UNIQUE, SKIP, TRACED_WITH_VECTORS, close, equal
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map
from torchair import _verdicts

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
GROUPS = 16 if FULL else 2
STEP = GROUPS if FULL else 60
# Dynamo cannot trace their arguments, or what they give cannot be compared; PyTorch has jiterator's
# for CUDA alone, no device calls them here.
LEFT_OUT = SKIP | {"item", "nonzero_static", "normal", "_segment.reduce"}
LEFT_OUT |= {op.name for op in op_db if op.name.startswith("jiterator")}


def operators(group):
    return [op for op in op_db[group::STEP] if op.name not in LEFT_OUT]


def on_npu(value):
    """The tensor with all of its memory: as_strided may ask for what the view does not show."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    elements = value.untyped_storage().nbytes() // value.element_size()
    if value.is_conj() or value.is_neg() or elements == value.numel():
        return value.npu()
    whole = value.as_strided((elements,), (1,), 0).npu()
    return whole.as_strided(value.shape, value.stride(), value.storage_offset())


def moved(sample):
    return tree_map(on_npu, (sample.input, sample.args, sample.kwargs))


def samples(op, dtype):
    found = []
    for sample in op.sample_inputs("cpu", dtype):
        leaves = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        if tensors and all(t.layout == torch.strided for t in tensors):
            found.append(moved(sample))
    return found


@pytest.mark.parametrize("group", range(GROUPS))
def test_operators(group):
    """The second sample has other sizes, so Dynamo compiles it with symbols."""
    seen = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for op in operators(group):
            if torch.float32 not in op.supported_dtypes("cpu"):
                continue
            torch._dynamo.reset()
            run = torch.compile(
                lambda first, args, kwargs, op=op: op.op(first, *args, **kwargs),
                backend=torchair.get_npu_backend(),
            )
            for first, args, kwargs in samples(op, torch.float32)[: 3 if FULL else 2]:
                torch.manual_seed(42)
                wanted = tree_flatten(op.op(first, *args, **kwargs))[0]
                for _ in range(2):
                    torch.manual_seed(42)
                    got = tree_flatten(run(first, args, kwargs))[0]
                    alike = close if op.name in TRACED_WITH_VECTORS | NOT_UNIQUE else equal
                    assert all(map(alike, got, wanted)), f"{op.name} {op.variant_test_name}"
                seen += 1
    assert seen


def compiles_strictly(function) -> bool:
    torch._dynamo.reset()
    try:
        torch.compile(function, backend=torchair.get_npu_backend(strict=True))()
    except Exception as error:
        assert "strict compile" in str(error), error
        return False
    return True


def reported(function) -> bool:
    """Whether every call of the function's graphs is supported, as the report says."""
    return not torchair.get_npu_backend().explain(function)().unsupported()


def variations():
    """(operator, sample) of many dtypes and sizes, drawn the same way every time: every operator
    with one of the dtypes, then, as long as some are missing, with the next."""
    dtypes = (torch.float32, torch.float16, torch.int32, torch.bool, torch.float64)
    wanted, step = (500, 1) if FULL else (6, 97)
    draw = random.Random(1)
    found = 0
    for turn in range(len(dtypes)):
        for i, op in enumerate(op for op in op_db[::step] if op.name not in LEFT_OUT):
            dtype = dtypes[(i + turn) % len(dtypes)]
            some = samples(op, dtype) if dtype in op.supported_dtypes("cpu") else []
            if some:
                found += 1
                yield op, draw.choice(some)
            if found >= wanted:
                return


@pytest.mark.parametrize("profile", ["none", "ascend910b"])
def test_the_report_is_what_strict_compile_does(profile, monkeypatch):
    """Through Dynamo and AOTAutograd. Where calls really run is test_where_calls_run."""
    monkeypatch.setattr(_verdicts, "profile", lambda: profile)
    answers, wrong = [], []
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for op, (first, args, kwargs) in variations():
            function = lambda: op.op(first, *args, **kwargs)  # noqa: B023, E731
            try:
                said = reported(function)
                assert said == compiles_strictly(function), f"the report says {said}"
                answers.append(said)
            except Exception as error:
                wrong.append(f"{op.name} {op.variant_test_name}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)
    assert len(answers) >= (500 if FULL else 6)
    assert profile == "none" or set(answers) == {True, False}


TRUTH = """
import sys
sys.path[:0] = [{graph!r}, {python!r}]
import torch, torch_npu, strict_truth
from torch.testing._internal.common_methods_invocations import op_db

dtypes = [getattr(torch, name) for name in {dtypes!r}.split()]
wrong, inside, outside = strict_truth.disagreements(op_db[{first}::{step}], dtypes, {samples})
assert not wrong, "\\n".join(wrong)
print(inside, "cases inside,", outside, "outside")
assert inside and outside
"""


def drivers_that_are_no_cpu(name: str) -> dict[str, str]:
    """With few kernels; with every kernel of the host driver, in memory the host cannot read."""
    if name == "few":
        return {"NPU_DRIVER": built_driver("discrete")}
    return {**faulty_environment(), "NPU_FAULTY_HOST_ACCESS": "none", "NPU_PROFILE": "none"}


@pytest.mark.parametrize("first", range(8) if FULL else [3])
@pytest.mark.parametrize("kernels", ["few", "many"])
def test_where_calls_run(run_python, kernels, first):
    """The report's claim against strict compile, the ladder's counters and the CPU's results: every
    operator of OpInfo, three samples of each dtype (about 5,000 variations), in full runs."""
    here = Path(__file__).resolve().parent
    dtypes = "float32 int64 float16 bool float64 complex64" if FULL else "float32 float16 int64"
    code = TRUTH.format(
        graph=str(here), python=str(here.parent / "python"), dtypes=dtypes, first=first,
        step=8 if FULL else 40, samples=3 if FULL else 2,
    )  # fmt: skip
    run_python(code, timeout=900, NPU_FALLBACK="silent", **drivers_that_are_no_cpu(kernels))


@pytest.mark.parametrize("profile", ["none", "ascend910b"])
def test_an_operator_without_a_kernel_is_an_island_and_named(profile, monkeypatch):
    monkeypatch.setattr(_verdicts, "profile", lambda: profile)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(on_cpu_only(x + 1)) - 1

    model, x = Model().npu(), torch.randn(2, 3, device="npu")
    backend = torchair.get_npu_backend()
    run = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        wanted = torch.nn.functional.linear(
            (x.cpu().double() + 1) * 2, model.linear.weight.cpu().double()
        ) + (model.linear.bias.cpu().double() - 1)
        before = len(calls_seen)
        for _ in range(3):
            torch.testing.assert_close(run(x).cpu().double(), wanted, rtol=1e-5, atol=1e-6)
        assert len(calls_seen) == before + 3  # called at every run, replays included
        report = backend.explain(model)(x)
    assert [name for name, *_ in report.fix_next()] == ["graph_tests.on_cpu_only.default"]
    for text in (report.to_markdown(), report.to_csv(), report.to_html("zh")):
        assert "graph_tests.on_cpu_only.default" in text
    with pytest.raises(Exception, match=r"(?s)strict compile.*graph_tests\.on_cpu_only"):
        torch.compile(model, backend=torchair.get_npu_backend(strict=True))(x)


def test_random_state_is_set_where_dispatching_is_off():
    """As PyTorch's own tests do; Dynamo must not trace it there."""

    def draw():
        with torch.utils._mode_utils.no_dispatch():
            torch.npu.set_rng_state(state)
        return torch.rand(3, device="npu")

    state = torch.npu.get_rng_state()
    run = torch.compile(draw, backend=torchair.get_npu_backend())
    assert run().tolist() == run().tolist()


calls_seen = []


@torch.library.custom_op("graph_tests::on_cpu_only", mutates_args=(), device_types="cpu")
def on_cpu_only(x: torch.Tensor) -> torch.Tensor:
    calls_seen.append(x.device.type)
    return torch.from_numpy(x.numpy() * 2)


on_cpu_only.register_fake(lambda x: torch.empty_like(x))
