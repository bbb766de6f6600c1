# SPDX-License-Identifier: Apache-2.0
"""The flight recorder: what PyTorch's own reader of such files makes of ours."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch_npu
from ranks import ranks


def some_calls(rank, size):
    x = torch.ones(3, device="npu")
    dist.all_reduce(x)
    dist.broadcast(x.to(torch.bfloat16), 0)
    gathered = [torch.empty(3, device="npu") for _ in range(size)]
    dist.all_gather(gathered, x)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)
    half = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(torch.ones(2, 2, device="npu"), group=half)
    dist.barrier()


def every_kind(rank, size):
    """All that the recorder has a name for, uneven lists and crossing messages too; two ranks of three in some."""
    x = torch.arange(6.0, device="npu")
    each = [torch.empty(6, device="npu") for _ in range(size)]
    uneven = [torch.empty(r + 1, device="npu") for r in range(size)]
    dist.broadcast(x, 1)
    dist.reduce(x, 1)
    dist.all_gather(uneven, x[: rank + 1].clone())
    dist.all_gather_into_tensor(torch.empty(6 * size, device="npu"), x)
    dist.gather(x, each if rank == 2 else None, dst=2)
    dist.scatter(x, each if rank == 0 else None, src=0)
    dist.reduce_scatter(x, each)
    dist.reduce_scatter(uneven[rank].clone(), uneven)
    dist.reduce_scatter_tensor(torch.empty(2, device="npu"), x)
    dist.all_to_all_single(torch.empty_like(x), x)
    dist.all_to_all(each, [x.clone() for _ in range(size)])
    dist.all_to_all(
        [torch.empty(rank + 1, device="npu") for _ in range(size)], [u.clone() for u in uneven]
    )
    dist.all_reduce_coalesced([x, x.clone()])
    if rank != 1:  # both send first
        partner = 2 - rank
        works = [
            dist.isend(x, partner),
            dist.isend(x, partner, tag=3),
            dist.irecv(each[0], partner, tag=3),
        ]
        works.append(dist.irecv(each[1], partner))
        [work.wait() for work in works]
    dist.monitored_barrier()
    return torch_npu.distributed.write_flight_record()


def recorded(rank, size):
    some_calls(rank, size)
    return torch_npu.distributed.write_flight_record()


def fr_trace(folder):
    """What the reader prints of the files in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def load(folder, rank):
    with open(os.path.join(folder, f"rank_{rank}"), "rb") as file:
        return pickle.load(file)


@pytest.fixture
def prefix(tmp_path):
    return {"TORCH_HCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "rank_")}


def test_pytorchs_reader_matches_the_calls_of_all_ranks(tmp_path, prefix):
    with ranks(3, **prefix) as made:
        files = made.run(recorded)
    assert files == [str(tmp_path / f"rank_{rank}") for rank in range(3)]
    assert sorted(os.listdir(tmp_path)) == ["rank_0", "rank_1", "rank_2"]  # nothing half written
    text = fr_trace(tmp_path)
    assert not [word for word in ("mismatch", "culprit", "missing") if word in text.lower()], text
    first = load(tmp_path, 0)
    names = [entry["profiling_name"] for entry in first["entries"]]
    assert names[:4] == ["hccl:all_reduce", "hccl:broadcast", "hccl:all_gather", "hccl:send 0->1"]
    assert names[-2:] == ["hccl:all_reduce", "hccl:barrier"]
    assert {config["ranks"] for config in first["pg_config"].values()} == {"[0, 1, 2]", "[0, 1]"}
    assert len(first["pg_config"]) == 3  # all, two of them, and the pair of the message
    assert all(entry["state"] == "completed" for entry in first["entries"])
    reduced, sent = first["entries"][0], first["entries"][3]
    assert reduced["input_sizes"] == reduced["output_sizes"] == [[3]]
    assert reduced["input_dtypes"] == ["Float"] and not reduced["is_p2p"]
    assert sent["is_p2p"] and sent["p2p_seq_id"] == 1 and sent["output_sizes"] == []
    assert (
        0
        < reduced["time_created_ns"]
        <= reduced["time_discovered_started_ns"]
        <= reduced["time_discovered_completed_ns"]
    )
    # The user's line is in the stack.
    assert any(
        frame["name"] == "some_calls" and frame["filename"].endswith("test_flight_recorder.py")
        for frame in reduced["frames"]
    )


def test_the_reader_has_nothing_to_say_of_a_run_without_mistakes(tmp_path, prefix):
    with ranks(3, **prefix) as made:
        made.run(every_kind)
    text = fr_trace(tmp_path).lower()
    assert not [
        word for word in ("mismatch", "culprit", "error", "missing", "not all") if word in text
    ], text


def one_is_away(rank, size):
    x = torch.ones(5, device="npu")
    dist.all_reduce(x)
    if rank != 2:
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.all_reduce(x)


def test_a_time_out_writes_files_that_name_the_rank(tmp_path, prefix):
    with ranks(3, timeout=2, TORCH_HCCL_DUMP_ON_TIMEOUT="1", **prefix) as made:
        made.run(one_is_away)
        # The rank that stayed away is asked for its own, as one would on a real machine.
        made.run(recorded_by_the_absent)
        text = fr_trace(tmp_path)
    last = load(tmp_path, 0)["entries"][-1]
    assert last["state"] == "scheduled" and last["retired"] and "has not come" in last["error"]
    assert "missing ranks: {2}" in text, text


def recorded_by_the_absent(rank, size):
    if rank == 2:
        torch_npu.distributed.write_flight_record()


def kept(rank, size):
    for n in range(1, 8):
        dist.all_reduce(torch.ones(n, device="npu"))
    module = torch_npu._C._distributed_c10d
    everything = json.loads(module._dump_hccl_trace_json())
    active = json.loads(module._dump_hccl_trace_json(onlyActive=True))
    groups = pickle.loads(module._dump_hccl_trace(includeCollectives=False))
    return everything, active, groups


def test_the_ring_keeps_the_newest(tmp_path):
    with ranks(2, TORCH_HCCL_TRACE_BUFFER_SIZE="3") as made:
        everything, active, groups = made.run(kept)[1]
    assert [entry["input_sizes"] for entry in everything["entries"]] == [[[5]], [[6]], [[7]]]
    assert active["entries"] == [] and "entries" not in groups and groups["pg_config"]


def test_off_records_nothing():
    with ranks(2, TORCH_HCCL_TRACE_BUFFER_SIZE="0") as made:
        everything, active, _ = made.run(kept)[0]
    assert everything["entries"] == active["entries"] == []


def unwritable(rank, size):
    with pytest.raises(RuntimeError, match="TORCH_HCCL_DEBUG_INFO_TEMP_FILE") as error:
        torch_npu.distributed.write_flight_record()
    return str(error.value)


def test_a_folder_that_is_not_there_is_said(tmp_path):
    away = str(tmp_path / "away" / "rank_")
    with ranks(1, TORCH_HCCL_DEBUG_INFO_TEMP_FILE=away) as made:
        assert f"{away}0 could not be written: No such file" in made.run(unwritable)[0]
