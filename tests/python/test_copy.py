# SPDX-License-Identifier: Apache-2.0
"""Copies between host and devices, all types and layouts, compared with CPU bit for bit."""

import itertools
import warnings

import pytest
import torch
from programs import program

pytestmark = pytest.mark.modes

REAL = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
FLOATING = [dtype for dtype in REAL if dtype.is_floating_point]
COMPLEX = [torch.complex64, torch.complex128]
RAW = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


def sample(dtype, *shape):
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float64).sub(count // 3).remainder(100)
    if dtype.is_complex:
        return torch.complex(values, values - 7).to(dtype).reshape(shape)
    return values.to(dtype).reshape(shape)


def same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    a, b = (x.resolve_conj().resolve_neg().contiguous().reshape(-1) for x in (a, b))
    assert a.view(torch.uint8).equal(b.view(torch.uint8))


@pytest.mark.parametrize("dtype", REAL + COMPLEX + RAW, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 0, 2), (5, 3, 4)], ids=str)
def test_there_and_back(dtype, shape):
    x = sample(dtype, *shape)
    same_bits(x.npu().cpu(), x)
    same_bits(x.npu().clone().cpu(), x)


@pytest.mark.parametrize("to, source", itertools.product(REAL + COMPLEX, repeat=2), ids=str)
def test_casts(to, source):
    x = sample(source, 4, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = x.to(to)
        same_bits(x.npu().to(to).cpu(), expected)  # on the device
        same_bits(
            torch.empty(4, 9, dtype=to, device="npu").copy_(x).cpu(), expected
        )  # on the way in
        same_bits(torch.empty(4, 9, dtype=to).copy_(x.npu()), expected)  # on the way out


def test_casts_of_what_is_not_finite():
    """A NaN stays one, with whatever bits, and overflow is infinite: in vectors and behind them."""
    for to, source in itertools.permutations(FLOATING, 2):
        x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e38, -1e38, 0.0, -0.0, 3.0])
        x = x.repeat(9)[:67].to(source)
        x[1::16] = torch.finfo(source).smallest_normal / 2
        expected, got = x.to(to), x.npu().to(to).cpu()
        assert got.isnan().equal(x.isnan()), (to, source)
        same_bits(got.nan_to_num(1.0), expected.nan_to_num(1.0))
        same_bits(got.isinf(), expected.isinf())


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "sliced": lambda x: x[1:, ::2, 1:],
    "permuted": lambda x: x.permute(1, 2, 0),
    "expanded": lambda x: x[:, :1].expand(4, 6, 4),
    "offset": lambda x: x.reshape(-1)[3:67].view(4, 4, 4),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.complex128, torch.float64])
def test_layouts(name, dtype):
    x = sample(dtype, 4, 6, 4)
    view = LAYOUTS[name]
    same_bits(view(x.npu()).cpu(), view(x))
    same_bits(view(x).npu().cpu(), view(x))
    same_bits(view(x.npu()).contiguous().cpu(), view(x).contiguous())
    same_bits(view(x.npu()).to(torch.complex64).cpu(), view(x).to(torch.complex64))
    assert view(x.npu()).clone().stride() == view(x).clone().stride()


@pytest.mark.parametrize(
    "to, source", itertools.product([n for n in LAYOUTS if n != "expanded"], repeat=2)
)
def test_layouts_on_both_sides(to, source):
    def run(a, b):
        base = sample(torch.float32, 6, 6, 6).to(a)
        target = LAYOUTS[to](base[:4, :, :4])[:2, :2, :2]
        target.copy_(LAYOUTS[source](sample(torch.float64, 4, 6, 4).to(b))[:2, :2, :2])
        return base.cpu()

    expected = run("cpu", "cpu")
    for a, b in (("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")):
        same_bits(run(a, b), expected)


def test_broadcast():
    for a, b in (("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")):
        x = torch.empty(3, 4, device=a).copy_(torch.arange(4, device=b))
        assert x.tolist() == [[0, 1, 2, 3]] * 3
        x = torch.empty(3, 4, device=a).copy_(torch.tensor(2.0, device=b))
        assert x.tolist() == [[2] * 4] * 3
        x = torch.empty(0, 4, device=a).copy_(torch.tensor([2.0], device=b))
        assert x.shape == (0, 4)


@pytest.mark.parametrize("a, b", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu"), ("cpu", "cpu")])
def test_what_does_not_fit_raises_as_on_cpu(a, b):
    with pytest.raises(
        RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(4\)"
    ):
        torch.empty(3, device=a).copy_(torch.empty(4, device=b))
    with pytest.raises(
        RuntimeError, match=r"output with shape \[3\] doesn't match the broadcast shape"
    ):
        torch.empty(3, device=a).copy_(torch.empty(2, 3, device=b))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.empty(1, device=a).expand(3).copy_(torch.ones(3, device=b))


def test_overlap_raises_as_on_cpu():
    for device in ("cpu", "npu"):
        x = torch.arange(16.0, device=device).reshape(4, 4)
        for to, source in ((x[1:], x[:-1]), (x, x.t())):
            with pytest.raises(RuntimeError, match="refer to a single memory location"):
                to.copy_(source)
        x.copy_(x)
        x.copy_(x.view(4, 4))
        x[:2].copy_(x[2:])
        assert x[0].tolist() == x[2].tolist() == [8, 9, 10, 11]


def first_to_all(x):
    x[:] = x[0]


def first_row_to_all(x):
    x.view(2, 8)[:] = x[:8]


def first_to_a_column(x):
    x.view(2, 8)[:, 0] = x[0]


def row_to_the_diagonal(x):
    x.view(4, 4).diagonal().copy_(x[:4])


def diagonal_to_a_row(x):
    torch.diagonal_copy(x.view(4, 4), out=x[:4])


def add_the_first_to_its_column(x):
    x.view(4, 4)[:, 0].add_(x[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.complex64])
@pytest.mark.parametrize(
    "change",
    [
        first_to_all,
        first_row_to_all,
        first_to_a_column,
        row_to_the_diagonal,
        diagonal_to_a_row,
        add_the_first_to_its_column,
    ],
)
def test_sources_inside_of_their_target(change, dtype):
    """An equal address is not the same memory: x[0], expanded, begins where x does."""
    x = torch.arange(1, 17).to(dtype)
    y = x.npu()
    change(x)
    change(y)
    assert torch.equal(y.cpu(), x)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_conj_and_neg_do_not_recurse(dtype):
    # Without a fallthrough on these keys clone -> copy_ -> clone has no end.
    # No zeros: CPU negates complex ones as 0 - 0, whose sign depends on the kernel.
    z = sample(dtype, 3, 4) + (0.5 + 0.25j)
    for view in (
        lambda z: z.conj(),
        lambda z: torch._neg_view(z),
        lambda z: torch._neg_view(z.conj()),
        lambda z: z.conj().imag,
        lambda z: z.conj().t(),
    ):
        got, expected = view(z.npu()), view(z)
        same_bits(got.cpu(), expected)
        same_bits(got.clone().cpu(), expected)
        same_bits(got.contiguous().cpu(), expected)
        same_bits(got.resolve_conj().resolve_neg().cpu(), expected)
        same_bits(view(z).npu().cpu(), expected)
        same_bits(torch._copy_from(got, torch.empty_like(got)).cpu(), expected)
        same_bits(
            torch._copy_from_and_resize(got, torch.empty(0, dtype=got.dtype, device="npu")).cpu(),
            expected,
        )


@pytest.mark.parametrize("a, b", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
def test_copies_into_conj_and_neg_views(a, b):
    def run(a, b):
        z = torch.zeros(5, dtype=torch.complex64, device=a)
        z.conj()[:2].copy_(sample(torch.complex64, 2).to(b))
        torch._neg_view(z)[2:4].copy_(sample(torch.complex64, 2).to(b))
        z.conj().imag[4:].copy_(torch.tensor([3.0], device=b))
        return z.cpu()

    same_bits(run(a, b), run("cpu", "cpu"))


def test_numbers_without_a_sign_into_negated_views():
    for dtype in (torch.uint8, torch.bool, torch.int8, torch.uint16, torch.uint64):
        source = torch.tensor([5, -128, 0]).to(dtype)
        parts = []
        for device in ("cpu", "npu"):
            z = torch.zeros(3, dtype=torch.complex64, device=device)
            z.conj().imag.copy_(source.to(device))
            z[:1].conj().imag[:] = source.to(device)[:1]
            parts.append(z.cpu().imag.tolist())
        assert parts[0] == parts[1], dtype


def test_conj_in_place():
    z = sample(torch.complex64, 6).npu()
    z.copy_(z.conj())
    same_bits(z.cpu(), sample(torch.complex64, 6).conj())


def test_lost_imaginary_parts_are_warned_about(run_python):
    code = """
import torch, torch_npu, warnings
z = torch.ones(2, dtype=torch.complex64, device="npu")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    z.to(torch.bool)
    assert not seen, seen
    z.to(torch.float32)
assert any("discards the imaginary part" in str(w.message) for w in seen), seen
"""
    run_python(code)


def test_copy_from_and_resize():
    x = torch.arange(6.0).reshape(2, 3)
    for a, b in (("npu", "cpu"), ("cpu", "npu"), ("npu", "npu")):
        out = torch._copy_from_and_resize(x.to(a), torch.empty(0, device=b))
        assert out.cpu().equal(x) and out.device.type == b


def test_meta_tensors():
    with pytest.raises(NotImplementedError, match="no data"):
        torch.empty(3, device="npu").copy_(torch.empty(3, device="meta"))
    assert torch.empty(3, device="meta").copy_(torch.ones(3, device="npu")).device.type == "meta"


def test_pinned_memory_may_be_dropped_at_once():
    total = torch.zeros(256, 1024, device="npu")
    for i in range(20):
        host = torch.full((256, 1024), float(i)).pin_memory()
        total += host.to("npu", non_blocking=True)
        del host  # the pool must not hand it out while the copy is queued
        torch.full((256, 1024), -1.0).pin_memory()
    assert total.cpu().eq(190).all()


def test_pageable_memory_may_be_changed_at_once():
    host = torch.ones(1 << 18)
    x = host.to("npu", non_blocking=True)
    host.fill_(7)
    assert x.cpu().eq(1).all()
    out = torch.empty(1 << 18).copy_(x, non_blocking=True)
    assert out.eq(1).all()


def test_asynchronous_downloads_arrive_after_synchronize():
    x = torch.full((1 << 18,), 3.0, device="npu")
    out = torch.zeros(1 << 18).pin_memory()
    out.copy_(x * 2, non_blocking=True)
    torch.npu.synchronize()
    assert out.eq(6).all()
    out.copy_(x, non_blocking=False)
    assert out.eq(3).all()


def test_copies_follow_the_current_stream():
    side = torch.npu.Stream()
    x = torch.zeros(1 << 16, device="npu")
    for i in range(5):
        x.fill_(i)
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            y = x.clone().to(torch.float64)
            host = y.cpu()
        assert host.eq(i).all()
        torch.npu.current_stream().wait_stream(side)


ASYNC = program(__file__, "_async")


@pytest.mark.parametrize("delay", ["0", "2000"])
def test_really_asynchronous(run_python, delay):
    run_python(ASYNC, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US=delay)


PEERS = program(__file__, "_peers")


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_between_devices(run_python, asynchronous):
    run_python(PEERS, NPU_HOST_DEVICES="2", NPU_HOST_ASYNC=asynchronous, NPU_HOST_DELAY_US="500")


FOREIGN = program(__file__, "_foreign")


def test_a_driver_without_kernels(run_python):
    # The null driver has memory and streams only: the host side stages.
    run_python(FOREIGN, NPU_DRIVER="null")


@pytest.mark.parametrize("access", ["coherent", "explicit", "none"])
def test_kinds_switched_off(run_python, access):
    # With "none" host code cannot reach the memory either: raw bytes go there and back.
    run_python(FOREIGN, NPU_DISABLE_KIND="copy,fill", NPU_HOST_ACCESS=access)
