# SPDX-License-Identifier: Apache-2.0
"""New tensors on the device: what they look like, and what is refused."""

import pytest
import torch

pytestmark = pytest.mark.modes

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_has_the_asked_shape_and_type(dtype):
    x = torch.empty((2, 0, 3), dtype=dtype, device="npu")
    assert x.device == torch.device("npu", torch.npu.current_device())
    assert x.shape == (2, 0, 3) and x.dtype == dtype and x.is_contiguous()
    y = torch.empty((4, 5), dtype=dtype, device="npu")
    assert y.untyped_storage().nbytes() == 20 * dtype.itemsize


def test_default_dtype_is_followed():
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.empty(1, device="npu").dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format])
def test_memory_formats(format):
    x = torch.empty(2, 3, 4, 5, device="npu", memory_format=format)
    assert x.stride() == torch.empty(2, 3, 4, 5, memory_format=format).stride()


@pytest.mark.parametrize(
    "shape, stride", [((2, 3), (1, 2)), ((2, 3), (0, 4)), ((), ()), ((0,), (7,))]
)
def test_empty_strided(shape, stride):
    x = torch.empty_strided(shape, stride, device="npu")
    y = torch.empty_strided(shape, stride)
    assert x.stride() == y.stride()
    assert x.untyped_storage().nbytes() == y.untyped_storage().nbytes()


def test_negative_sizes_and_strides_are_refused():
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        torch.empty(-1, device="npu")
    with pytest.raises(RuntimeError, match="negative dimension -2"):
        torch.empty_strided((-2,), (1,), device="npu")


def test_an_index_without_a_device_is_refused():
    count = torch.npu.device_count()
    for make in (torch.empty, torch.zeros, torch.ones, torch.rand):
        with pytest.raises(RuntimeError, match=r"(?i)invalid device"):
            make(3, device=f"npu:{count}")


def test_pinned_device_memory_is_refused():
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(3, device="npu", pin_memory=True)
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty_strided((3,), (1,), device="npu", pin_memory=True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32, torch.bool]
)
def test_deterministic_mode_fills_fresh_memory(dtype):
    def made(device):
        a = torch.empty(3, dtype=dtype, device=device)
        b = torch.empty_strided((2, 2), (1, 2), dtype=dtype, device=device)
        c = torch.empty(1, dtype=dtype, device=device).resize_(4)
        return a.cpu(), b.cpu(), c.cpu()[1:]

    torch.use_deterministic_algorithms(True)
    try:
        for on_npu, on_cpu in zip(made("npu"), made("cpu"), strict=True):
            torch.testing.assert_close(on_npu, on_cpu, equal_nan=True, rtol=0, atol=0)
    finally:
        torch.use_deterministic_algorithms(False)


def same_bits(a, b):
    return a.dtype == b.dtype and a.view(torch.uint8).equal(b.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES[:16], ids=str)
def test_zeros_ones_and_full(dtype):
    for make in (torch.zeros, torch.ones):
        x = make(3, 4, dtype=dtype, device="npu")
        assert same_bits(x.cpu(), make(3, 4, dtype=dtype)), make
    value = True if dtype == torch.bool else 7
    x = torch.full((5,), value, dtype=dtype, device="npu")
    assert same_bits(x.cpu(), torch.full((5,), value, dtype=dtype))


FILLS = [
    (torch.uint8, -1),
    (torch.int32, 1.5),
    (torch.bool, 0.5),
    (torch.uint64, -1),
    (torch.float32, float("nan")),
    (torch.float32, -0.0),
    (torch.float64, 0.1),
    (torch.float16, 65504),
    (torch.complex64, 1 + 2j),
    (torch.int64, 2**62 + 1),
    (torch.float8_e4m3fn, 1.3),
]


@pytest.mark.parametrize("dtype, value", FILLS, ids=str)
def test_fill_converts_as_cpu_does(dtype, value):
    x = torch.empty(3, dtype=dtype, device="npu").fill_(value).cpu()
    y = torch.empty(3, dtype=dtype).fill_(value)
    assert same_bits(x, y)


@pytest.mark.parametrize(
    "dtype, value",
    [(torch.int8, 300), (torch.int32, float("nan")), (torch.float32, 1 + 2j), (torch.float16, 1e9)],
    ids=str,
)
def test_fill_overflow_raises_as_on_cpu(dtype, value):
    for device in ("cpu", "npu"):
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.empty(3, dtype=dtype, device=device).fill_(value)


@pytest.mark.parametrize("dtype, value", [(torch.float16, -1e9), (torch.bfloat16, 1e300)])
def test_a_single_half_takes_an_infinity_as_on_cpu(dtype, value):
    x = torch.ones(3, dtype=dtype)
    for f in (
        lambda x: torch.where(x > 0, value, x),
        lambda x: torch.scalar_tensor(value, dtype=x.dtype, device=x.device),
        lambda x: x.clone().index_put_(
            (x > 0,), torch.full((), value, dtype=dtype, device=x.device)
        ),
    ):
        assert torch.equal(f(x.npu()).cpu(), f(x))
    got, expected = x.npu(), x.clone()
    got[1], expected[1] = value, value
    assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("value", [0, 3, -0.0])
def test_fill_writes_only_its_own_elements(value):
    def filled(device):
        x = torch.arange(60.0).reshape(3, 4, 5).to(device)
        x[:, 1:3, ::2].fill_(value)
        x.permute(2, 0, 1)[1].fill_(value)
        return x.cpu()

    assert filled("npu").equal(filled("cpu"))


def test_fill_of_an_expanded_tensor_works():
    assert torch.zeros(1, device="npu").expand(4).fill_(2).tolist() == [2] * 4


def test_fill_with_tensors():
    x = torch.empty(3, device="npu")
    assert x.fill_(torch.tensor(2.5)).tolist() == [2.5] * 3
    assert x.fill_(torch.tensor(3, device="npu")).tolist() == [3] * 3
    x = torch.arange(3.0, device="npu")
    assert x.fill_(x[2]).tolist() == [2] * 3
    with pytest.raises(RuntimeError, match="only supports 0-dimension value tensor"):
        x.fill_(torch.ones(2, device="npu"))


def test_zero_tensors_keep_their_key():
    # Forward mode differentiation makes them; without the key their null memory is read.
    x = torch._efficientzerotensor(2, 3, device="npu")
    assert x.device.type == "npu" and x._is_zerotensor()
    assert (x + 1).cpu().equal(torch.ones(2, 3))
    assert x.clone().cpu().equal(torch.zeros(2, 3))
    assert torch.ones(2, 3, device="npu").copy_(x).sum().item() == 0
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        x.copy_(torch.ones(2, 3, device="npu"))
    f = lambda v: (v**3).sum()  # noqa: E731
    h = torch.autograd.functional.hessian(f, torch.arange(3.0, device="npu"))
    assert h.cpu().equal(torch.autograd.functional.hessian(f, torch.arange(3.0)))


@pytest.mark.parametrize("dtype", DTYPES[:16], ids=str)
def test_item_reads_one_element(dtype):
    value = 1 if dtype == torch.bool else 5
    x = torch.full((2, 3), value, dtype=dtype, device="npu")
    assert x[1, 2].item() == torch.full((), value, dtype=dtype).item()
    assert type(x[0, 0].item()) is type(torch.full((), value, dtype=dtype).item())


def test_item_honours_conj_and_neg_and_size():
    z = torch.tensor([1 + 2j], device="npu")
    assert z.conj().item() == 1 - 2j
    assert z.conj().imag.item() == -2
    with pytest.raises(RuntimeError, match="2 elements cannot be converted to Scalar"):
        torch.ones(2, device="npu").item()
