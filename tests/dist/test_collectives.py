# SPDX-License-Identifier: Apache-2.0
"""Every collective, against what its definition gives for the ranks' known inputs."""

import pytest
import torch
import torch.distributed as dist
from ranks import ranks

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32,
    torch.int64, torch.uint64, torch.bool, torch.complex64,
]  # fmt: skip


def values(rank, dtype, shape=(3, 5)):
    """Small whole numbers, which every dtype holds and sums exactly."""
    count = torch.Size(shape).numel()
    plain = (torch.arange(count) * 7 + rank * 3) % 5
    plain = plain > 1 if dtype is torch.bool else plain
    if dtype.is_complex:
        return torch.complex(plain.float(), plain.float() + rank).reshape(shape)
    return plain.to(dtype).reshape(shape)


def same(got, wanted):
    got = got.cpu()
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got, wanted)
    assert bytes(got.contiguous().view(torch.uint8).flatten().tolist()) == bytes(
        wanted.contiguous().view(torch.uint8).flatten().tolist()
    ), (got, wanted)


# ---- reductions


def reduced(op, size, dtype):
    """By the definition, in whole numbers."""
    every = [values(r, dtype) for r in range(size)]
    if dtype is torch.bool:
        wide = torch.stack(every)
        return wide.any(0) if op in ("SUM", "MAX", "BOR") else wide.all(0)
    wide = torch.stack([v.to(torch.complex128 if dtype.is_complex else torch.int64) for v in every])
    result = {
        "SUM": lambda: wide.sum(0),
        "PRODUCT": lambda: wide.prod(0),
        "MIN": lambda: wide.min(0).values,
        "MAX": lambda: wide.max(0).values,
        "AVG": lambda: (
            wide.sum(0) // size if not dtype.is_floating_point else wide.double().sum(0) / size
        ),
        "BAND": lambda: wide[0] & wide[1] & wide[2] & wide[3],
        "BOR": lambda: wide[0] | wide[1] | wide[2] | wide[3],
        "BXOR": lambda: wide[0] ^ wide[1] ^ wide[2] ^ wide[3],
    }[op]()
    return result.to(dtype)


def ops_of(dtype):
    if dtype is torch.bool:
        return ["SUM", "MAX", "BOR", "MIN", "PRODUCT", "BAND"]
    if dtype.is_complex:
        return ["SUM"]
    return ["SUM", "PRODUCT", "MIN", "MAX", "AVG"] + (
        [] if dtype.is_floating_point else ["BAND", "BOR", "BXOR"]
    )


def all_reductions(rank, size, dtype):
    for op in ops_of(dtype):
        for made in (values(rank, dtype), values(rank, dtype, (5, 3)).t()):  # dense, strided
            mine = made.to("npu")
            wanted = reduced(op, size, dtype)
            if not made.is_contiguous():
                mine = values(rank, dtype).to("npu").t().contiguous().t()
            dist.all_reduce(mine, getattr(dist.ReduceOp, op))
            same(mine, wanted)
        mine = values(rank, dtype).to("npu")
        dist.reduce(mine, 2, getattr(dist.ReduceOp, op))
        same(mine, reduced(op, size, dtype) if rank == 2 else values(rank, dtype))
        whole = torch.cat([values(rank, dtype)] * size).to("npu")
        part = torch.empty(3, 5, dtype=dtype, device="npu")
        dist.reduce_scatter_tensor(part, whole, getattr(dist.ReduceOp, op))
        same(part, reduced(op, size, dtype))
        pieces = [values(rank, dtype).to("npu") for _ in range(size)]
        dist.reduce_scatter(part.zero_(), pieces, getattr(dist.ReduceOp, op))
        same(part, reduced(op, size, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions(four, dtype):
    four.run(all_reductions, dtype)


def corners(rank, size):
    # Halves are summed in float32 and rounded once: 256 + 1 + 1 + 1 = 259, which is 260 in bfloat16.
    half = torch.tensor([256.0 if rank == 0 else 1.0] * 7, dtype=torch.bfloat16, device="npu")
    dist.all_reduce(half)
    assert half.tolist() == [260.0] * 7
    # Unsigned numbers from 2^63 on are large, not negative.
    big = torch.tensor([2**64 - 1 - rank, rank], dtype=torch.uint64, device="npu")
    least = big.clone()
    dist.all_reduce(big, dist.ReduceOp.MAX)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    assert big.tolist() == [2**64 - 1, 3] and least.tolist() == [2**64 - 4, 0]
    mean = torch.tensor([2**62 + rank], dtype=torch.uint64, device="npu")
    dist.all_reduce(mean, dist.ReduceOp.AVG)  # the sum is beyond 2^64: modulo it
    assert mean.item() == (sum(2**62 + r for r in range(4)) % 2**64) // 4
    # Averages of integers go towards zero.
    whole = torch.tensor([-3 - rank], device="npu")
    dist.all_reduce(whole, dist.ReduceOp.AVG)
    assert whole.item() == -4
    scaled = torch.full((3,), rank + 1.0, device="npu")
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    assert scaled.tolist() == [5.0] * 3
    for empty in (torch.empty(0, device="npu"), torch.empty(2, 0, dtype=torch.int16, device="npu")):
        dist.all_reduce(empty)
        dist.broadcast(empty, 0)
    tensors = [torch.full((n,), float(rank), device="npu") for n in (1, 4)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert [t.tolist() for t in tensors] == [[6.0], [6.0] * 4]
    number = torch.tensor(rank + 1.0, device="npu")  # no dimension
    dist.all_reduce(number)
    assert number.item() == 10


def test_corners_of_reductions(four):
    four.run(corners)


# ---- what moves


def dimensions_of_one(rank, size):
    """Such a dimension may have any stride: a column of a matrix, or x[::2] of one element."""
    every = [float(r) for r in range(size)]
    for sizes, strides in (((1,), (2,)), ((3, 1), (1, 7)), ((1, 1), (5, 9))):

        def make(value, sizes=sizes, strides=strides):
            return torch.full((9,), value, device="npu").as_strided(sizes, strides)

        mine, got = make(float(rank)), [make(-1.0) for _ in every]
        dist.all_gather(got, mine)
        assert [t.unique().tolist() for t in got] == [[r] for r in every]
        dist.all_to_all(got, [make(rank * 10.0 + r) for r in every])
        assert [t.unique().tolist() for t in got] == [[r * 10 + rank] for r in every]
        dist.gather(mine, got if rank == 1 else None, 1)
        assert rank != 1 or [t.unique().tolist() for t in got] == [[r] for r in every]
        dist.scatter(mine, got if rank == 1 else None, 1)
        assert mine.unique().tolist() == [rank]
        dist.broadcast(mine, 2)
        assert mine.unique().tolist() == [2]
        dist.all_reduce(mine)
        assert mine.unique().tolist() == [2 * size]
        works = [dist.isend(mine, (rank + 1) % size), dist.irecv(got[0], (rank - 1) % size)]
        [work.wait() for work in works]
        assert got[0].unique().tolist() == [2 * size]


def test_dimensions_of_one(four):
    four.run(dimensions_of_one)


def all_moves(rank, size, dtype):
    mine = values(rank, dtype).to("npu")
    every = [values(r, dtype) for r in range(size)]
    got = mine.clone()
    dist.broadcast(got, 1)
    same(got, every[1])
    outputs = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(outputs, mine)
    for output, wanted in zip(outputs, every, strict=True):
        same(output, wanted)
    whole = torch.empty(3 * size, 5, dtype=dtype, device="npu")
    dist.all_gather_into_tensor(whole, mine)
    same(whole, torch.cat(every))
    flat = torch.empty(1, 15 * size, dtype=dtype, device="npu")  # as SyncBatchNorm asks
    dist.all_gather_into_tensor(flat, mine)
    same(flat, torch.cat(every).reshape(1, -1))
    uneven = [torch.empty(r + 1, dtype=dtype, device="npu") for r in range(size)]
    dist.all_gather(uneven, values(rank, dtype, (rank + 1,)).to("npu"))
    for r, output in enumerate(uneven):
        same(output, values(r, dtype, (r + 1,)))
    gathered = [torch.empty_like(mine) for _ in range(size)] if rank == 3 else None
    dist.gather(mine, gathered, dst=3)
    for output, wanted in zip(gathered or [], every):
        same(output, wanted)
    part = torch.empty_like(mine)
    dist.scatter(part, [e.to("npu") for e in every] if rank == 2 else None, src=2)
    same(part, every[rank])
    rows = torch.stack([values(rank + r, dtype, (6,)) for r in range(size)]).to("npu")
    swapped = torch.empty_like(rows)
    dist.all_to_all_single(swapped, rows)
    wanted = [values(r + rank, dtype, (6,)) for r in range(size)]
    same(swapped, torch.stack(wanted))
    # Rank r sends r + 1 rows to each.
    sent = values(rank, dtype, (size * (rank + 1), 2)).to("npu")
    got = torch.empty(sum(r + 1 for r in range(size)), 2, dtype=dtype, device="npu")
    dist.all_to_all_single(got, sent, [r + 1 for r in range(size)], [rank + 1] * size)
    wanted = [values(r, dtype, (size * (r + 1), 2))[rank * (r + 1) :][: r + 1] for r in range(size)]
    same(got, torch.cat(wanted))
    lists = [torch.empty_like(mine) for _ in range(size)]
    dist.all_to_all(lists, [mine.clone() for _ in range(size)])
    for output, wanted in zip(lists, every, strict=True):
        same(output, wanted)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.bool], ids=str)
def test_moves(four, dtype):
    four.run(all_moves, dtype)


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    # A ring that receives first: no rank may block its own send.
    got = torch.empty(3, dtype=torch.int16, device="npu")
    receiving = dist.irecv(got, before)
    sending = dist.isend(torch.full((3,), rank, dtype=torch.int16, device="npu"), after)
    receiving.wait(), sending.wait()
    assert got.tolist() == [before] * 3
    # Messages of one pair keep their order; tags cross.
    if rank == 0:
        for i in range(5):
            dist.send(torch.tensor([i], device="npu"), 1)
        works = [dist.isend(torch.tensor([t], device="npu"), 1, tag=t) for t in (1, 2)]
        [work.wait() for work in works]
    if rank == 1:
        box = torch.empty(1, dtype=torch.int64, device="npu")
        for i in range(5):
            dist.recv(box, 0)
            assert box.item() == i
        for tag in (2, 1):
            dist.recv(box, 0, tag=tag)
            assert box.item() == tag
    dist.barrier()
    if rank == 0:
        found = set()
        box = torch.empty(2, device="npu")
        for _ in range(size - 1):
            source = dist.recv(box)
            assert box.tolist() == [source, source]
            found.add(source)
        assert found == {1, 2, 3}
    else:
        dist.send(torch.full((2,), float(rank), device="npu"), 0)
    dist.barrier()
    if rank == 2:
        dist.send(torch.ones(5, device="npu"), 3)
        dist.send(torch.ones(4, device="npu"), 3)
    if rank == 3:
        box = torch.zeros(4, device="npu")
        with pytest.raises(dist.DistBackendError, match="room for 16 bytes, but rank 2 sent 20"):
            dist.recv(box, 2)
        dist.recv(box, 2)
        assert box.tolist() == [1.0] * 4


def test_messages(four):
    four.run(messages)


def groups(rank, size):
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = halves[rank // 2]
    one = torch.full((2,), float(rank), device="npu")
    dist.all_reduce(one, group=mine)
    assert one.tolist() == [1.0 if rank < 2 else 5.0] * 2
    cpu = torch.full((2,), rank)
    dist.all_reduce(cpu)
    assert cpu.tolist() == [6, 6]
    names = [None] * size
    dist.all_gather_object(names, f"rank {rank}")
    assert names == [f"rank {r}" for r in range(size)]
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("a", "b"))
    whole = torch.arange(32.0).reshape(8, 4)
    spread = distribute_tensor(whole.to("npu"), mesh, [Shard(0), Shard(1)])
    assert torch.equal((spread @ spread.T).full_tensor().cpu(), whole @ whole.T)
    gathered = torch.distributed._functional_collectives.all_gather_tensor(one, 0, mine)
    assert gathered.tolist() == [1.0 if rank < 2 else 5.0] * 4
    dist.monitored_barrier()


def test_groups_and_meshes(four):
    four.run(groups)


def test_check_for_nan():
    """An operator of c10d that is no collective runs as every other."""
    if not hasattr(torch.ops.c10d, "check_for_nan"):
        pytest.skip("this torch has no such operator")
    torch.ops.c10d.check_for_nan(torch.ones(3, device="npu"))
    with pytest.raises(RuntimeError, match="NaN"):
        torch.ops.c10d.check_for_nan(torch.tensor([1.0, float("nan")], device="npu"))


def wrong_arguments(rank, size):
    x = torch.ones(4, device="npu")
    with pytest.raises(ValueError, match=r"ReduceOp\.BAND is not defined for Float"):
        dist.all_reduce(x, dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="do not fill an output of 9"):
        dist.all_gather_into_tensor(torch.empty(9, device="npu"), x)
    with pytest.raises(TypeError, match="must have one dtype"):
        dist.all_gather_into_tensor(torch.empty(16, device="npu", dtype=torch.int32), x)
    with pytest.raises(ValueError, match="sum to 3, it has 4 rows"):
        dist.all_to_all_single(torch.empty_like(x), x, [1, 1, 1, 1], [1, 1, 1, 0])
    with pytest.raises(dist.DistBackendError, match=r"disagree on call .* all_reduce SUM Float"):
        dist.all_reduce(torch.ones(rank + 1, device="npu"))
    with pytest.raises(dist.DistBackendError, match="disagree"):
        if rank == 1:
            dist.broadcast(x, 0)
        else:
            dist.all_reduce(x)
    with pytest.raises(ValueError, match="dense"):
        dist.all_reduce(torch.eye(3, device="npu").to_sparse())
    with pytest.raises(ValueError, match="dense"):
        dist.broadcast(torch.eye(3, device="npu").to_sparse_csr(), 0)
    with pytest.raises(ValueError, match="elements share memory"):
        dist.all_reduce(torch.ones(3, device="npu").expand(2, 3))
    # Rank 0 sends one row too many to rank 1.
    rows = torch.ones(size + (rank == 0), 2, device="npu")
    splits = [1 + (rank == 0 and r == 1) for r in range(size)]
    message = "rank 0 sends 16 bytes to rank 1, which has room for 8"
    with pytest.raises(dist.DistBackendError, match=message):
        dist.all_to_all_single(torch.empty(size, 2, device="npu"), rows, None, splits)
    with pytest.raises(dist.DistBackendError, match=message):
        dist.all_to_all(
            [torch.empty(2, device="npu") for _ in range(size)],
            list(rows.flatten().split([2 * s for s in splits])),
        )
    # What differs stands at the end of a long list.
    many = [torch.ones(3, device="npu") for _ in range(40)] + [torch.ones(3 + rank, device="npu")]
    with pytest.raises(dist.DistBackendError, match="disagree"):
        dist.all_reduce_coalesced(many)
    assert all(t.eq(1).all() for t in many)
    dist.all_reduce(x)  # the group goes on
    assert x.tolist() == [4.0] * 4


def test_what_ranks_disagree_on_is_said_and_survived(four):
    four.run(wrong_arguments)


def test_memory_the_host_cannot_read():
    """Through pinned copies: down on the caller's stream, up before the work is done."""
    with ranks(4, NPU_HOST_ACCESS="none", NPU_HOST_ASYNC="1", NPU_HOST_DEVICES="2") as made:
        made.run(all_reductions, torch.bfloat16)
        made.run(all_moves, torch.int16)
