# SPDX-License-Identifier: Apache-2.0
"""Rung 4: memory lives as long as a CPU kernel or queued work uses it."""

import contextlib

import pytest
import torch
from programs import program


@pytest.fixture
def keeper():
    """An operator whose CPU kernel keeps its argument, and the list it keeps it in."""
    kept = []
    library = torch.library.Library("lifetimes", "DEF")
    library.define("keep(Tensor x, bool fail) -> ()")

    def keep(x, fail):
        kept.append(x)
        if fail:
            raise ValueError("refused")

    for key in ("CPU", "QuantizedCPU", "NestedTensorCPU", "SparseCPU"):
        library.impl("keep", keep, key)
    library.impl("keep", torch.library.fallthrough_kernel, "AutogradNestedTensor")
    yield kept
    kept.clear()
    library._destroy()


def keep(x, fail):
    with pytest.raises(ValueError, match="refused") if fail else contextlib.nullcontext():
        torch.ops.lifetimes.keep(x, fail)


def reuse(numel, fill=0.0):
    """Takes the memory that was just freed for something else, then gives it back."""
    filler = [torch.full((numel,), fill, device="npu") for _ in range(20)]
    del filler
    torch.npu.empty_cache()


VALUES = torch.arange(60_000.0)


def test_a_kernel_that_keeps_its_argument_and_raises(keeper):
    x = VALUES.to("npu")
    keep(x, fail=True)
    del x
    reuse(60_000)
    assert torch.equal(keeper[0], VALUES)


@pytest.mark.parametrize("fail", [False, True])
def test_a_kernel_that_keeps_a_quantised_argument(keeper, fail):
    quantised = torch.quantize_per_tensor(VALUES % 100, 1.0, 0, torch.qint8)
    x = torch.quantize_per_tensor(VALUES.to("npu") % 100, 1.0, 0, torch.qint8)
    keep(x, fail)
    del x
    reuse(15_000, 7.0)
    assert torch.equal(keeper[0].int_repr(), quantised.int_repr())


@pytest.mark.parametrize("fail", [False, True])
def test_a_kernel_that_keeps_a_nested_argument(keeper, fail):
    parts = [VALUES[:20_000], VALUES[20_000:]]
    x = torch.nested.nested_tensor([p.to("npu") for p in parts])
    keep(x, fail)
    del x
    reuse(60_000)
    for part, got in zip(parts, keeper[0].unbind(), strict=True):
        assert torch.equal(got, part)


@pytest.mark.parametrize("fail", [False, True])
def test_a_kernel_that_keeps_a_sparse_argument(keeper, fail):
    x = torch.sparse_coo_tensor(torch.arange(60_000)[None], VALUES, (60_000,)).to("npu")
    keep(x, fail)
    del x
    reuse(60_000)
    assert torch.equal(keeper[0]._values(), VALUES)


@pytest.mark.parametrize("engine", ["onednn", "qnnpack", "fbgemm"])
def test_packed_weights_outlive_what_they_were_made_of(engine):
    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"this build of torch has no {engine}")
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        weight = torch.randn(64, 200, generator=torch.Generator().manual_seed(0))
        x = torch.quantize_per_tensor(weight[:4], 0.1, 10, torch.quint8)
        made = []
        for device in ("cpu", "npu"):
            q = torch.quantize_per_tensor(weight.to(device), 0.05, 0, torch.qint8)
            bias = torch.ones(64, device=device)
            made.append(torch.ops.quantized.linear_prepack(q, bias))
            del q, bias
            reuse(64 * 200 // 4, 3.0)
        outs = [torch.ops.quantized.linear(x, packed, 0.1, 0) for packed in made]
        assert torch.equal(outs[0].int_repr(), outs[1].int_repr())
    finally:
        torch.backends.quantized.engine = before


# --- memory whose last use is still queued ---------------------------------------------------

QUEUED = program(__file__, "_queued")


def test_a_kernel_gets_memory_that_no_queued_work_uses(run_python):
    run_python(QUEUED, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="30000")


def test_two_threads_on_one_stream(run_python):
    code = program(__file__, "_two_threads_on_one_stream")
    run_python(code, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="200")


# --- lazy clones -----------------------------------------------------------------------------


def test_a_lazy_clone_on_a_device_that_is_not_current(run_python):
    code = program(__file__, "_a_lazy_clone_on_a_device_that_is_not_current")
    run_python(code, NPU_HOST_DEVICES="2", timeout=40)
    # The copy that parts the clones is queued like any work: rung 4 waits for it.
    late = {"NPU_HOST_ASYNC": "1", "NPU_HOST_KERNELS": "fast", "NPU_HOST_DELAY_US": "300"}
    run_python(code, NPU_HOST_DEVICES="2", timeout=40, **late)


def test_a_lazy_clone_without_elements(run_python):
    """In a process of its own, which an error in the copy would end when the tensors go."""
    run_python("""
import torch, torch_npu
x = torch.zeros(0, 4, device="npu")
a, b, c = (torch._lazy_clone(x) for _ in range(3))
a.add_(1)
b.erfinv_()
assert a.data_ptr() == 0 and c.untyped_storage().data_ptr() == 0
assert a.shape == b.shape == c.cpu().shape == (0, 4)
del a, b, x, c
""")


# --- memory that is opened to host code --------------------------------------------------------


def test_resized_outputs_are_closed_before_they_are_freed(run_python):
    code = """
import torch, torch_npu, warnings
warnings.simplefilter("ignore")
x = torch.arange(20_000.0, device="npu")
for out in (torch.empty(5, device="npu"), torch.empty(30_000, device="npu")):
    torch.fmax(x, x, out=out)
    assert torch.equal(out.cpu(), torch.arange(20_000.0))
    torch.linalg.inv(torch.eye(50, device="npu"), out=out)
    assert torch.equal(out.cpu(), torch.eye(50))
"""
    for caching in ({}, {"PYTORCH_NO_NPU_MEMORY_CACHING": "1"}):
        done = run_python(code, NPU_HOST_PROTECT="1", NPU_PROFILE="none", **caching)
        assert done.stderr == ""
