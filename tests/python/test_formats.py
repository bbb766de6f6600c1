# SPDX-License-Identifier: Apache-2.0
"""Storage formats: tags and padded sizes as torch_npu shows them; values never change."""

import copy
import io

import pytest
import torch
import torch_npu
from programs import program
from torch_npu import Format

PRIVATE = [3, 4, 29, 27, 32, 33, 50, 51, 52, 53, 54]
BASE = [0, 1, 2, 30]


@pytest.fixture(autouse=True)
def internal_formats():
    torch.npu.config.allow_internal_format = True
    yield
    torch.npu.config.allow_internal_format = False


def cast(x, format):
    return torch_npu.npu_format_cast(x, format)


def tag(x):
    return torch_npu.get_npu_format(x)


@pytest.mark.parametrize(
    "dims, expected", [(0, 2), (1, 2), (2, 2), (3, 2), (4, 0), (5, 30), (6, 2)]
)
def test_fresh_tensors(dims, expected):
    x = torch.zeros([2] * dims, device="npu")
    assert tag(x) == expected and isinstance(tag(x), Format)
    assert torch_npu.get_storage_size(x) == 2**dims


@pytest.mark.parametrize(
    "shape, dtype, format, storage",
    [
        ((2, 20, 5, 7), torch.float, 3, (2, 2, 5, 7, 16)),
        ((2, 20, 5, 7), torch.float, 4, (2 * 5 * 7, 1, 16, 16)),
        ((20, 17, 3, 3), torch.half, 4, (2 * 9, 2, 16, 16)),
        ((5, 256), torch.float, 29, (16, 1, 16, 16)),
        ((5, 256), torch.half, 29, (16, 1, 16, 16)),
        ((5, 256), torch.int8, 29, (8, 1, 16, 32)),
        ((3, 33, 17), torch.bfloat16, 29, (3, 2, 3, 16, 16)),
        ((2, 20, 3, 5, 7), torch.float, 32, (2, 3, 2, 5, 7, 16)),
        ((18, 20, 3, 5, 7), torch.float, 33, (3 * 2 * 5 * 7, 2, 16, 16)),
        ((5, 256), torch.float, 3, (1, 1, 256, 1, 16)),
        ((20,), torch.float, 3, (1, 2, 1, 1, 16)),
        ((4, 5, 6), torch.float, 3, (1, 1, 5, 6, 16)),
        ((), torch.float, 3, (1, 1, 1, 1, 16)),
        ((6, 40), torch.float, 51, (2, 1, 16, 32)),
        ((6, 40), torch.float, 54, (5, 1, 16, 8)),
        ((0, 40), torch.float, 29, (3, 0, 16, 16)),
    ],
)
def test_storage_sizes(shape, dtype, format, storage):
    values = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    x = cast(values.npu(), format)
    elements = torch.Size(storage).numel()
    assert tag(x) == format and x.shape == shape and x.is_contiguous()
    assert torch_npu.get_storage_size(x) == elements
    assert x.untyped_storage().size() == elements * dtype.itemsize
    assert torch.equal(x.cpu(), values)


@pytest.mark.parametrize("format", PRIVATE)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4, 5), (2, 3, 2, 4, 5), (7, 2, 3)])
def test_values_never_change(format, shape):
    values = torch.randn(shape)
    x = values.npu()
    there = cast(x, format)
    assert tag(there) == format and tag(x) == tag(values.npu())
    back = cast(there, 2)
    assert tag(back) == 2 and torch_npu.get_storage_size(back) == values.numel()
    assert torch.equal(back.cpu(), values)
    assert torch.equal((there + there).cpu(), values + values)
    assert torch.equal(there.sum(0).cpu(), values.npu().sum(0).cpu())
    assert repr(there) == repr(x)


def test_the_same_format_is_the_same_tensor():
    x = torch.zeros(2, 2, device="npu")
    assert cast(x, 2) is x
    y = cast(x, 29)
    assert cast(y, Format.FRACTAL_NZ) is y and y is not x
    assert y.data_ptr() != x.data_ptr()


def test_base_formats_only_tag():
    x = torch.zeros(2, 2, device="npu")
    for format in BASE:
        assert cast(x, format) is x
        assert tag(x) == format and tag(x.t()) == format
    assert torch_npu.get_storage_size(x) == 4


def test_vectors_have_no_nz():
    for x in (torch.zeros(5, device="npu"), torch.zeros((), device="npu")):
        assert cast(x, 29) is x and tag(x) == 2


def test_gradient_is_the_identity():
    x = torch.randn(3, 4, device="npu", requires_grad=True)
    y = cast(x, 29)
    assert y.requires_grad and not y.is_leaf and tag(y) == 29
    weights = torch.randn(3, 4, device="npu")
    (y * weights).sum().backward()
    assert torch.equal(x.grad, weights)
    assert cast(x, 0) is x
    with torch.no_grad():
        assert not cast(x, 29).requires_grad
    (second,) = torch.autograd.grad(
        torch.autograd.grad(cast(x, 29).pow(3).sum(), x, create_graph=True)[0].sum(), x
    )
    assert torch.allclose(second, 6 * x)


def test_like_another_tensor():
    x = torch.randn(3, 4, device="npu")
    nz = cast(x, 29)
    assert tag(cast(torch.zeros(5, 6, device="npu"), nz)) == 29
    assert tag(cast(nz, x)) == 2


def test_in_place():
    values = torch.randn(4, 3)
    x = values.npu()
    old = x.data_ptr()
    assert torch_npu.npu_format_cast_(x, 29) is x
    assert tag(x) == 29 and x.data_ptr() != old and torch.equal(x.cpu(), values)
    assert torch_npu.get_storage_size(x) == 256
    like = torch.zeros(2, 2, device="npu")
    torch_npu.npu_format_cast_(x, like)
    assert tag(x) == 2 and torch_npu.get_storage_size(x) == 12
    assert torch.equal(x.cpu(), values)
    transposed = values.npu().t()
    torch_npu.npu_format_cast_(transposed, 29)
    assert transposed.is_contiguous() and torch.equal(transposed.cpu(), values.t())


def test_parameters_in_place():
    layer = torch.nn.Linear(20, 20).npu()
    expected = layer(torch.ones(20, device="npu"))
    torch_npu.npu_format_cast_(layer.weight, 29)
    assert tag(layer.weight) == 29
    assert torch.equal(layer(torch.ones(20, device="npu")), expected)
    layer(torch.ones(20, device="npu")).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    assert tag(layer.weight) == 29 and not torch.equal(layer(torch.ones(20).npu()), expected)


def test_views_have_the_base_format():
    x = cast(torch.randn(4, 6, device="npu"), 29)
    for view in (x.t(), x[1:], x.view(6, 4), x.flatten()):
        assert tag(view) == 2 and torch_npu.get_storage_size(view) == 24
    assert tag(x.detach()) == 29 and tag(x.view(4, 6)) == 29
    # A cast of a view leaves the tensor it views alone.
    assert tag(cast(x.t(), 0)) == 0 and tag(x) == 29


def test_tags_die_with_their_storage():
    for _ in range(500):
        cast(torch.zeros(2, 2, device="npu"), 29)
        assert tag(torch.zeros(2, 2, device="npu")) == 2


def test_empty_with_format():
    x = torch_npu.empty_with_format((20, 20), dtype=torch.half, device="npu", acl_format=29)
    assert x.dtype == torch.half and x.is_npu and tag(x) == 29
    assert torch_npu.get_storage_size(x) == 1024
    y = torch_npu.empty_with_format([2, 3])
    assert y.is_npu and y.dtype == torch.float32 and tag(y) == 2
    assert tag(torch_npu.empty_with_format([2, 3, 4, 5], acl_format=1)) == 1
    with pytest.raises(RuntimeError, match="expected an npu device, but got cpu"):
        torch_npu.empty_with_format([2], device="cpu")
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch_npu.empty_with_format([-2, 3], acl_format=29)
    with pytest.raises(RuntimeError, match="is too large for format 29"):
        torch_npu.empty_with_format([2**40, 2**40], acl_format=29)


def test_not_allowed(run_python):
    done = run_python(program(__file__, "_not_allowed"))
    text = "Cannot create tensor with internal format while allow_internal_format=False"
    assert done.stderr.count(text) == 1


def test_older_chips_allow(run_python):
    run_python(
        "import torch, torch_npu\n"
        "assert torch.npu.config.allow_internal_format is True\n"
        "x = torch_npu.npu_format_cast(torch.zeros(2, 3, device='npu'), 29)\n"
        "assert torch_npu.get_npu_format(x) == 29",
        NPU_DEVICE_NAME="Ascend910A",
    )


def test_files_keep_the_format():
    values = torch.randn(3, 4)
    file = io.BytesIO()
    torch.save({"w": cast(values.npu(), 29), "b": values.npu()}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert tag(loaded["w"]) == 29 and tag(loaded["b"]) == 2
    assert torch_npu.get_storage_size(loaded["w"]) == 256
    assert torch.equal(loaded["w"].cpu(), values)
    file.seek(0)
    on_cpu = torch.load(file, map_location="cpu")
    assert torch.equal(on_cpu["w"], values)


def test_wrong_use():
    x = torch.zeros(2, 2, device="npu")
    for bad in (-1, 5, 12, 1000):
        with pytest.raises(ValueError, match=f"format {bad} is not one a tensor can have"):
            cast(x, bad)
    with pytest.raises(NotImplementedError, match="Could not run 'npu::npu_format_cast'"):
        cast(torch.zeros(2, 2), 29)
    assert tag(x) == 2


def test_names():
    x = torch.zeros(2, 2, device="npu")
    assert torch.ops.npu.get_npu_format(x) == 2
    assert tag(torch_npu.npu_format_cast(input=x, acl_format=29)) == 29
    assert tag(torch_npu.npu_format_cast(x, 29, customize_dtype=None, input_dtype=None)) == 29


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.zeros(3, 4, device="npu", requires_grad=True)
        y = cast(x, 29)
        assert y.shape == (3, 4) and y.device.type == "npu" and y.requires_grad
        assert torch.ops.npu.get_npu_format(x) == 2
        made = torch_npu.empty_with_format((5, 6), dtype=torch.half, acl_format=29)
        assert made.shape == (5, 6) and made.device.type == "npu"


def test_compiled():
    def body(x):
        return cast(x * 2, 29) + 1

    x = torch.randn(3, 4, device="npu", requires_grad=True)
    out = torch.compile(body, backend="aot_eager")(x)
    assert torch.equal(out, body(x))
    out.sum().backward()
    assert (x.grad == 2).all()


@pytest.fixture
def switches():
    yield
    torch.npu.set_mm_bmm_format_nd(True)
    torch.npu.set_compile_mode(jit_compile=False)


def test_cast_weight(switches):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )
    formats = lambda: [int(tag(p)) for p in model.parameters()]  # noqa: E731
    x = torch.randn(2, 3, 3, 3)
    want = model(x)
    model.npu()
    assert formats() == [0, 2, 2, 2, 2, 2]
    model.cast_weight("npu")
    assert formats() == [0, 2, 2, 2, 2, 2]
    torch.npu.set_mm_bmm_format_nd(False)
    model.to("npu")
    assert formats() == [0, 2, 2, 2, 29, 2]
    torch.npu.set_compile_mode(jit_compile=True)
    model.cast_weight("cpu")
    assert formats() == [0, 2, 2, 2, 29, 2]
    model.npu()
    assert formats() == [4, 2, 3, 3, 29, 2] and tag(model[1].running_var) == 3
    model[1].reset_running_stats()
    torch.testing.assert_close(model(x.npu()).cpu(), want, rtol=1e-4, atol=1e-5)
    assert torch.equal(model.cpu()[3].weight, model[3].weight)


def test_deepcopy_keeps_formats_and_offsets():
    torch.npu.config.allow_internal_format = True
    try:
        x = torch_npu.npu_format_cast(torch.arange(12.0, device="npu").view(3, 4), 29)
        layer = torch.nn.Linear(4, 4).npu()
        layer.weight.data = torch_npu.npu_format_cast(layer.weight.data, 29)
        twin, other = copy.deepcopy(x), copy.deepcopy(layer)
        weak = torch_npu._C._weak_ref_tensor(x)
    finally:
        torch.npu.config.allow_internal_format = False
    assert torch_npu.get_npu_format(x) == 29
    for made in (twin, weak):
        assert torch_npu.get_npu_format(made) == 29 and made.tolist() == x.tolist()
        assert torch_npu.get_storage_size(made) == torch_npu.get_storage_size(x)
    assert twin.data_ptr() != x.data_ptr() and weak.data_ptr() == x.data_ptr()
    assert torch_npu.get_npu_format(other.weight) == 29
    assert torch.equal(other.weight, layer.weight)
    part = torch.arange(8.0, device="npu")[3:6]
    made = copy.deepcopy(part)
    assert made.storage_offset() == 3 and made.tolist() == [3.0, 4.0, 5.0]
    tagged = torch_npu.npu_format_cast(torch.ones(2, 2, device="npu"), 1)
    assert torch_npu.get_npu_format(copy.deepcopy(tagged)) == 1
