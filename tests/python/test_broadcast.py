# SPDX-License-Identifier: Apache-2.0
"""Elementwise calls that broadcast along the last dimension, of few and of many elements, by one thread
and by several."""

import pytest
import torch
import torch_npu  # noqa: F401

# Which dimensions repeat, whether lines are short or long, and whether a thread's part of them ends in
# the middle of an outer dimension.
SHAPES = [
    ((7, 5), (7, 1)),
    ((300, 130), (300, 1)),
    ((1, 130), (300, 1)),
    ((3, 97, 1, 33), (3, 1, 11, 1)),
    ((40, 9, 200), (40, 1, 1)),
    ((9000, 1, 5), (1, 3, 1)),
    ((17, 4097), (17, 1)),
    ((2, 1, 40000), (1, 3, 1)),
]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]


def draw(shape, dtype, seed):
    numbers = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(seed))
    return (
        numbers.to(dtype)
        if not dtype.is_complex
        else torch.complex(numbers.float(), -numbers.float())
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_are_those_of_expanded_operands(dtype, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for shapes in SHAPES:
            a, b = (draw(shape, dtype, i) for i, shape in enumerate(shapes))
            for x, y in ((a, b), (b, a)):
                u, v = x.npu(), y.npu()
                wide = torch.broadcast_shapes(x.shape, y.shape)
                p, q = x.expand(wide).contiguous(), y.expand(wide).contiguous()
                assert torch.equal((u == v).cpu(), p == q), (shapes, "==")
                assert torch.equal((u * v).cpu(), p * q), (shapes, "*")
                if x.shape == wide:
                    assert torch.equal(u.clone().mul_(v).cpu(), p * q), (shapes, "mul_")
                if dtype != torch.bool:
                    assert torch.equal((u - v).cpu(), p - q), (shapes, "-")
                if dtype.is_floating_point:
                    r = torch.addcmul(u, u, v).cpu()
                    assert torch.equal(r, torch.addcmul(p, p, q)), (shapes, "addcmul")
    finally:
        torch.set_num_threads(before)
