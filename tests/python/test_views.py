# SPDX-License-Identifier: Apache-2.0
"""Views share memory with what they are views of, and look as they do on CPU."""

import pytest
import torch

VIEWS = {
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2), 1),
    "view": lambda x: x.view(6, 4),
    "view_infer": lambda x: x.view(-1),
    "view_dtype": lambda x: x.view(torch.int32),
    "view_dtype_size": lambda x: x.view(torch.float64),
    "reshape": lambda x: x.reshape(4, 6),
    "_reshape_alias": lambda x: torch.ops.aten._reshape_alias(x, (4, 6), (6, 1)),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "t": lambda x: x[0].t(),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "expand": lambda x: x[:, :1].expand(2, 3, 4),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[:, 1:3, ::2],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unbind": lambda x: x.unbind(1)[1],
    "movedim": lambda x: x.movedim(0, 2),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "tensor_split": lambda x: x.tensor_split(2, 2)[0],
    "hsplit": lambda x: x.hsplit(3)[1],
    "view_as": lambda x: x.view_as(torch.empty(6, 4)),
    "real": lambda x: x.real,
    "_neg_view": lambda x: torch._neg_view(x),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_alias(name):
    view = VIEWS[name]
    on_cpu = torch.arange(24.0).reshape(2, 3, 4)
    on_npu = on_cpu.npu()
    expected, got = view(on_cpu), view(on_npu)
    assert got.shape == expected.shape and got.stride() == expected.stride()
    assert got.storage_offset() == expected.storage_offset()
    assert got.is_neg() == expected.is_neg()
    assert got.untyped_storage().data_ptr() == on_npu.untyped_storage().data_ptr()
    assert got.cpu().equal(expected)
    on_cpu.add_(100)
    on_npu.add_(100)
    assert got.cpu().equal(expected)


@pytest.mark.parametrize(
    "view",
    [
        torch.view_as_real,
        lambda z: z.real,
        lambda z: z.imag,
        lambda z: torch.view_as_real(z.conj().resolve_conj()),
        lambda z: z.conj(),
        lambda z: z.conj().imag,
        lambda z: z.mH,
    ],
)
def test_complex_views(view):
    z = torch.randn(3, 4, dtype=torch.complex64)
    got, expected = view(z.npu()), view(z)
    assert got.is_conj() == expected.is_conj() and got.is_neg() == expected.is_neg()
    assert got.stride() == expected.stride()
    assert got.cpu().equal(expected)


def test_view_as_complex_writes_through():
    x = torch.zeros(3, 2, device="npu")
    torch.view_as_complex(x).fill_(1 + 2j)
    assert x.tolist() == [[1, 2]] * 3


def test_wrong_views_raise_as_on_cpu():
    for device in ("cpu", "npu"):
        x = torch.zeros(2, 3, device=device)
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            x.view(5)
        with pytest.raises(
            RuntimeError, match="not compatible with input tensor's size and stride"
        ):
            x.t().view(6)
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            x.as_strided((10,), (1,))
        with pytest.raises(RuntimeError, match="must have a last dimension of size 2"):
            torch.view_as_complex(x)


def test_autograd_goes_through_views():
    def grad(device):
        x = torch.arange(12.0).reshape(3, 4).to(device).requires_grad_()
        y = x.t().unfold(0, 2, 2).permute(2, 0, 1).reshape(-1)[::2]
        (y * torch.arange(1.0, 7, device=device)).sum().backward()
        return x.grad.cpu()

    assert grad("npu").equal(grad("cpu"))


def shapes():
    """Tensors of many geometries: contiguous, transposed, expanded, empty, without dimensions."""
    base = torch.arange(120.0)
    yield from (base, base[7], base[:0], base[3:4], base.view(2, 3, 4, 5), base.view(120, 1))
    yield from (base.view(2, 60).t(), base.view(2, 3, 20)[:, 1:, ::3], base[:6].expand(4, 6))
    yield from (base.as_strided((4, 1), (1, 7)), base.as_strided((1, 4), (99, 1), 5))
    yield base.view(2, 3, 4, 5)[:, :0]


NUMBERS = (-7, -2, -1, 0, 1, 3, 9)
SIZES = ((), (-1,), (1,), (0,), (2, -1), (-1, -1), (4, 6), (-1, 1, 4), (3, 5, 8), (-2, 60), (0, -1))
CALLS = {
    "t": [()],
    "transpose": [(a, b) for a in NUMBERS for b in NUMBERS],
    "permute": [((0,),), ((),), ((1, 0),), ((0, 0),), ((-1, 0, 2, 1),), ((2, 0, 1),), ((5, 0),)],
    "view": [(size,) for size in SIZES],
    "expand": [(size,) for size in (*SIZES, (7, -1), (2, 3, 4, 5), (4, 4), (5, 1, 4, 6))],
    "unsqueeze": [(dim,) for dim in NUMBERS],
    "select": [(dim, index) for dim in NUMBERS for index in NUMBERS],
    "split": [(size, dim) for dim in NUMBERS for size in (*NUMBERS, 2**62, 120)],
    "slice": [
        (dim, start, end, step)
        for dim in (-5, -1, 0, 2)
        for start in (None, -200, -2, 0, 1, 500)
        for end in (None, -200, -1, 0, 2, 2**63 - 1)
        for step in (0, 1, 3)
    ],
}


def geometry(call, tensor):
    try:
        views = call(tensor)
    except Exception as error:
        text = str(error).split("\n")[0].replace("npuFloatType", "torch.FloatTensor")
        return type(error), text
    views = views if isinstance(views, (list, tuple)) else [views]
    return [(v.shape, v.stride(), v.storage_offset(), v.is_contiguous()) for v in views]


@pytest.mark.parametrize("name", CALLS)
def test_geometry_and_errors_are_the_cpus(name):
    function = torch.ops.aten.slice.Tensor if name == "slice" else getattr(torch.Tensor, name)
    storage = torch.arange(120.0).npu()
    for cpu in shapes():
        npu = storage.as_strided(cpu.shape, cpu.stride(), cpu.storage_offset())
        for arguments in CALLS[name]:

            def call(tensor, arguments=arguments):
                return function(tensor, *arguments)

            assert geometry(call, npu) == geometry(call, cpu), (cpu.shape, arguments)
