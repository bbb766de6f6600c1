# SPDX-License-Identifier: Apache-2.0
"""torch_npu.profiler in a job of several ranks: a folder each, and who waited for whom."""

import json
import time

import pytest
import torch
import torch.distributed as dist
from ranks import ranks


def profiled(rank, size, folder):
    from torch_npu import profiler

    x = torch.ones(1 << 18, device="npu")
    dist.all_reduce(x)
    store = dist.distributed_c10d._get_default_store()
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=0, warmup=0, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(folder, worker_name=f"rank{rank}"),
    ) as prof:
        for step in range(2):
            if rank == 0:
                store.set(f"at {step}", "1")
            else:
                store.get(f"at {step}")
                time.sleep(1.0)  # rank 0 waits in its call
            dist.all_reduce(x)
            if rank == 0:
                dist.send(x[:1000], 1)
            else:
                dist.recv(x[:1000], 0)
            prof.step()


def test_each_rank_writes_what_it_moved_and_how_long_it_waited(tmp_path):
    with ranks(2) as made:
        made.run(profiled, str(tmp_path))
    waited = {}
    for rank in range(2):
        (folder,) = tmp_path.glob(f"rank{rank}_*_ascend_pt")
        assert json.loads((folder / f"profiler_info_{rank}.json").read_text())["rank_id"] == rank
        output = folder / "ASCEND_PROFILER_OUTPUT"
        content = json.loads((output / "communication.json").read_text())
        assert len(content) == 2 and all(name.startswith("step") for name in content)
        for step in content.values():
            assert list(step) == ["p2p", "collective"]
            assert set(step["p2p"]) == {("hcom_send__0", "hcom_receive__0")[rank], "Total Op Info"}
            reduced = step["collective"]["hcom_allReduce__0"]
            times, moved = (reduced[f"Communication {what} Info"] for what in ("Time", "Bandwidth"))
            assert moved["SDMA"]["Transit Size(MB)"] == pytest.approx((1 << 20) / 1e6)
            assert moved["RDMA"]["Transit Size(MB)"] == 0
            assert times["Elapse Time(ms)"] == pytest.approx(
                times["Transit Time(ms)"] + times["Wait Time(ms)"]
            )
            total = step["collective"]["Total Op Info"]["Communication Time Info"]
            assert total["Elapse Time(ms)"] == times["Elapse Time(ms)"]
            waited.setdefault(rank, []).append(times["Wait Time(ms)"])
        names = {e.get("name") for e in json.loads((output / "trace_view.json").read_text())}
        assert {"hccl::all_reduce", ("hccl::send", "hccl::recv")[rank]} <= names
    assert min(waited[0]) > 100 and min(waited[0]) > max(waited[1])
