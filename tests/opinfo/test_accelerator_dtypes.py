# SPDX-License-Identifier: Apache-2.0
"""Dtypes that accelerators have and PyTorch's CPU has not (ops/wide.yaml), against float64."""

import itertools
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from accelerator import cuda_only, exact_dtype, full_name, why_refused
from torch.utils._pytree import tree_leaves, tree_map
from wide_reference import ROWS

ROOT = Path(__file__).resolve().parents[2]
ROWS_OF_CUDA = cuda_only()
# Units in the last place of the result's largest number.
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.complex32: 4e-3}
# PyTorch makes a complex convolution of three real ones and rounds each, on CUDA too: judged by the largest number.
COMPOSED = {"nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d"}
# Their samples draw random numbers.
DRAWS = {"nn.functional.rrelu"}


def cast(tree, dtype, to, device="cpu"):
    def one(value):
        if isinstance(value, torch.Tensor):
            return value.detach().to(device, to if value.dtype == dtype else value.dtype)
        return value

    return tree_map(one, tree)


def compare(got, want, what, composed=False):
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            continue
        assert a.device.type == "npu" and a.shape == b.shape, what
        a = a.cpu()
        if not a.dtype.is_floating_point and not a.dtype.is_complex:
            assert torch.equal(a.to(torch.int64), b.to(torch.int64)), what
            continue
        wide = torch.complex128 if a.dtype.is_complex else torch.float64
        tolerance = TOLERANCE.get(a.dtype, 1e-4)
        atol = tolerance * float(b.abs().max()) if composed and b.numel() else tolerance
        # complex32 holds no more than float16.
        fits = b.abs() < 6e4
        torch.testing.assert_close(
            a.to(wide)[fits],
            b.to(wide)[fits],
            rtol=tolerance,
            atol=atol,
            equal_nan=True,
            msg=lambda m: f"{what}: {m}",
        )


@pytest.mark.parametrize(
    "op, dtype", ROWS_OF_CUDA, ids=[f"{full_name(o)}-{str(d)[6:]}" for o, d in ROWS_OF_CUDA]
)
def test_works_as_on_cuda(op, dtype):
    torch.manual_seed(0)
    random.seed(0)
    refused = why_refused(op, dtype)
    exact = exact_dtype(dtype)
    compared = 0
    for i, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), 4)):
        tree = (sample.input, sample.args, sample.kwargs)
        here = cast(tree, dtype, dtype, "npu")
        if refused:
            with pytest.raises((RuntimeError, NotImplementedError)):
                op(here[0], *here[1], **here[2])
            return
        got = op(here[0], *here[1], **here[2])
        if op.name in DRAWS:
            assert got.dtype == dtype
            compared += 1
            continue
        if dtype == torch.bool:
            there = cast(tree, dtype, torch.int64)
        elif exact == dtype:
            there = cast(tree, dtype, torch.float64)
        else:
            there = cast(tree, dtype, exact)
        compare(got, op(there[0], *there[1], **there[2]), f"sample {i}", op.name in COMPOSED)
        compared += 1
    assert compared


def test_histc_of_integers():
    """As a mixture of experts counts the tokens of its experts."""
    chosen = torch.randint(0, 8, (1000,), generator=torch.Generator().manual_seed(0))
    for dtype in (torch.int32, torch.int64, torch.int16, torch.uint8):
        got = torch.histc(chosen.to(dtype).npu(), bins=8, min=0, max=7)
        assert got.dtype == dtype and got.tolist() == torch.bincount(chosen, minlength=8).tolist()
    out = torch.empty(8, dtype=torch.int32).npu()
    assert torch.histc(chosen.int().npu(), 8, 0, 7, out=out) is out and out.sum() == 1000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_that_no_opinfo_lists(dtype):
    x, y = torch.rand(5, 3).to(dtype), torch.rand(4, 3).to(dtype)
    for p in (1.0, 2.0, 3.0):
        want = torch.cdist(x.double(), y.double(), p)
        torch.testing.assert_close(
            torch.cdist(x.npu(), y.npu(), p).cpu(), want.to(dtype), rtol=1e-2, atol=1e-2
        )
        want = torch.pdist(x.double(), p)
        got = torch.pdist(x.npu(), p).cpu()
        torch.testing.assert_close(got, want.to(dtype), rtol=1e-2, atol=1e-2)
    leaf = x.npu().requires_grad_()
    torch.pdist(leaf, 3.0).sum().backward()
    wide = x.double().requires_grad_()
    torch.pdist(wide, 3.0).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), wide.grad.to(dtype), rtol=2e-2, atol=2e-2)
    relu = torch._VF._add_relu if hasattr(torch._VF, "_add_relu") else torch.ops.aten._add_relu
    want = torch.relu(x.double() - 0.5)
    torch.testing.assert_close(relu(x.npu(), torch.full_like(x.npu(), -0.5)).cpu(), want.to(dtype))
    image = torch.rand(1, 2, 8, 8).to(dtype)
    for mode in ("bilinear", "bicubic"):
        want = F.interpolate(image.double(), size=(3, 5), mode=mode, antialias=True)
        got = F.interpolate(image.npu(), size=(3, 5), mode=mode, antialias=True).cpu()
        torch.testing.assert_close(got, want.to(dtype), rtol=1e-2, atol=1e-2)


def test_int32_targets():
    scores = torch.randn(4, 5, 2, 2, dtype=torch.float64)
    target = torch.randint(0, 5, (4, 2, 2))
    for shape, index in ((scores, target), (scores[..., 0, 0], target[:, 0, 0])):
        leaf = shape.float().npu().requires_grad_()
        wide = shape.clone().requires_grad_()
        got = F.cross_entropy(leaf, index.int().npu(), label_smoothing=0.0)
        want = F.cross_entropy(wide, index)
        torch.testing.assert_close(got.detach().cpu().double(), want.detach(), rtol=1e-5, atol=1e-6)
        got.backward()
        want.backward()
        torch.testing.assert_close(leaf.grad.cpu().double(), wide.grad, rtol=1e-4, atol=1e-6)
    flat, index = scores[..., 0, 0], target[:, 0, 0]
    torch.testing.assert_close(
        F.multi_margin_loss(flat.float().npu(), index.int().npu()).cpu().double(),
        F.multi_margin_loss(flat, index), rtol=1e-5, atol=1e-6,
    )  # fmt: skip
    labels = torch.tensor([[1, 3, -1, 0, 0]] * 4)
    torch.testing.assert_close(
        F.multilabel_margin_loss(flat.half().npu(), labels.int().npu()).cpu().double(),
        F.multilabel_margin_loss(flat.half().double(), labels), rtol=2e-3, atol=2e-3,
    )  # fmt: skip
    rows = F.one_hot(index.int().npu(), 5)
    assert rows.tolist() == F.one_hot(index, 5).tolist() and rows.dtype == torch.int32


@pytest.mark.parametrize(
    "name", sorted(n for n, rows in ROWS.items() if len(rows) and rows[0]["dtypes"])
)
def test_names_are_operators(name):
    assert hasattr(torch.ops.aten, name)


MIXES = {  # what gives complex32 by PyTorch's rules of promotion
    "complex32 with float16": (torch.complex32, torch.float16),
    "float16 with complex32": (torch.float16, torch.complex32),
    "complex32 with a number of float32": (torch.complex32, torch.float32),
    "a number of bfloat16 with complex32": (torch.bfloat16, torch.complex32),
}


@pytest.mark.parametrize("name", ["div", "pow"])
@pytest.mark.parametrize("mix", MIXES)
def test_mixes_that_give_complex_halves(mix, name):
    """The CPU refuses them, accelerators compute them; against complex128."""
    f, (one, other) = getattr(torch, name), MIXES[mix]
    torch.manual_seed(0)
    a, b = (torch.rand(7, dtype=torch.float64) + 0.5 for _ in range(2))
    a = a.to(one) if one.is_floating_point else torch.complex(a, a.flip(0)).to(one)
    b = b.to(other) if other.is_floating_point else torch.complex(b, -b.flip(0)).to(other)
    if torch.float32 == other:
        b = b[0]
    if torch.bfloat16 == one:
        a = a[0]
    wide = [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b)]
    want = f(*wide)
    got = f(a.npu(), b.npu())
    assert got.dtype == torch.complex32
    compare(got, want, mix)
    kept = torch.empty(7, dtype=torch.complex32, device="npu")
    assert f(a.npu(), b.npu(), out=kept) is kept
    compare(kept, want, mix)
    if a.is_complex():
        compare(getattr(a.npu(), name + "_")(b.npu()), want, mix)


def test_halves_with_complex_numbers():
    x = torch.tensor([0.5, 1.5, 2.0], dtype=torch.float16)
    wide = x.double()
    for f in (lambda t: t / 2j, lambda t: 2j / t, lambda t: t ** (1 + 2j), lambda t: (1 + 2j) ** t):
        got = f(x.npu())
        assert got.dtype == torch.complex32
        compare(got, f(wide), "half with a complex number")
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.npu().div_(2j)


def test_sums_that_are_asked_for_as_complex_halves():
    x = torch.rand(3, 4)
    for f in (torch.sum, torch.prod):
        for start in (x, x.half(), x.to(torch.complex64), x.double()):
            got = f(start.npu(), dtype=torch.complex32)
            assert got.dtype == torch.complex32
            compare(got, f(start.to(torch.complex128)), "dtype=complex32")
        compare(
            f(x.npu(), 1, dtype=torch.complex32), f(x.to(torch.complex128), 1), "along a dimension"
        )


def test_mixes_that_give_wider_complex_numbers():
    """float32 and bfloat16 of several elements: complex64, as PyTorch promotes."""
    x = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex32)
    for other in (torch.float32, torch.bfloat16):
        y = torch.tensor([0.5, 3.0], dtype=other)
        got = x.npu() / y.npu()
        assert got.dtype == torch.complex64
        compare(got, x.to(torch.complex128) / y.double(), str(other))
