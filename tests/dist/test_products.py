# SPDX-License-Identifier: Apache-2.0
"""npu operators that multiply and communicate: each rank's result, from the matrices of all ranks."""

import pytest
import torch
import torch.distributed as dist
from ranks import ranks

SIZE = 2


def matrices(rank):
    """Whole numbers, which float16 holds and sums exactly."""
    x = (torch.arange(12.0).reshape(4, 3) * 3 + rank * 5) % 7
    w = (torch.arange(15.0).reshape(3, 5) * 2 + rank * 4) % 5
    return x, w


def name_of(group=None):
    group = group or dist.group.WORLD
    return group._get_backend(torch.device("npu")).get_hccl_comm_name(dist.get_rank())


def products(rank, size, dtype):
    import torch_npu

    x, w = (m.to(dtype).npu() for m in matrices(rank))
    bias, third = torch.ones(5, dtype=dtype).npu(), torch.full((4, 5), 2.0, dtype=dtype).npu()
    hcom = name_of()
    gathered = torch_npu.npu_all_gather_base_mm(x, w, hcom, SIZE, bias=bias)
    without = torch_npu.npu_all_gather_base_mm(x, w, hcom, SIZE, gather_output=False)
    kept = torch_npu.npu_mm_reduce_scatter_base(x, w, hcom, SIZE)
    summed = torch_npu.npu_mm_all_reduce_base(x, w, hcom, bias=bias, x3=third)
    waited = torch.ops.npu._npu_distribute_barrier(x, hcom, SIZE)
    return [t.cpu() for t in (*gathered, *without, kept, summed, waited)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_values(dtype, two):
    found = two.run(products, dtype)
    every = [matrices(r) for r in range(SIZE)]
    rows = torch.cat([x for x, _ in every])
    total = sum(x @ w for x, w in every)
    for rank, (y, gathered, plain, empty, kept, summed, waited) in enumerate(found):
        x, w = every[rank]
        wanted = (
            (y, rows @ w + 1), (gathered, rows), (plain, rows @ w), (kept, total[rank * 2 : rank * 2 + 2]),
            (summed, total + SIZE * 3), (waited, x),
        )  # fmt: skip
        for got, want in wanted:
            assert got.dtype == dtype and torch.equal(got.float(), want)
        assert empty.shape == (0,)


def refused(rank, size):
    import torch_npu

    x, w = (m.npu() for m in matrices(rank))
    said = []
    for call in (
        lambda: torch_npu.npu_all_gather_base_mm(x, w, "nobody", SIZE),
        lambda: torch_npu.npu_all_gather_base_mm(x, w, name_of(), 3),
        lambda: torch_npu.npu_all_gather_base_mm(x, x, name_of(), SIZE),
        lambda: torch_npu.npu_mm_reduce_scatter_base(x[:3], w, name_of(), SIZE),
        lambda: torch_npu.npu_mm_all_reduce_base(x, w, name_of(), reduce_op="max"),
        lambda: torch_npu.npu_mm_all_reduce_base(x, w, name_of(), dequant_scale=x),
    ):
        try:
            call()
        except (RuntimeError, NotImplementedError) as error:
            said.append(str(error))
    return said


def test_what_is_wrong_is_said_before_anything_is_sent(two):
    for said in two.run(refused):
        assert len(said) == 6
        assert "hcom is 'nobody', which names no process group here" in said[0]
        assert "world_size is 3; the group of hcom has 2 ranks" in said[1]
        assert "x1 has shape [4, 3] and x2 [4, 3]" in said[2]
        assert "its rows a multiple of 2 ranks" in said[3]
        assert "reduce_op is max; allowed: sum" in said[4] and "ERR01001" in said[4]
        assert "dequant_scale is not supported here" in said[5] and "ERR01007" in said[5]
    two.run(products, torch.float32)  # the group goes on


@pytest.fixture(scope="module")
def two():
    with ranks(SIZE) as made:
        yield made
