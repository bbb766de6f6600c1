# SPDX-License-Identifier: Apache-2.0
"""Two gloo processes: collectives are captured, with what they made."""

import os
import subprocess
import sys

import pytest
import torch
from op_tools import captures

WORKER = """
import os, sys, torch, op_tools
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
tool = op_tools.OpCapture()
tool.start()
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
x.mul_(10)
gathered = [torch.zeros(2), torch.zeros(2)]
dist.all_gather(gathered, torch.full((2,), float(rank)))
work = dist.all_reduce(y := torch.full((5,), float(rank)), async_op=True)
work.wait()
y.add(1)
if rank == 0:
    dist.send(torch.full((3,), 7.0), 1)
else:
    dist.recv(torch.zeros(3), 0)
dist.barrier()
tool.stop()
print(tool.folder)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    path = tmp_path_factory.mktemp("gloo")
    env = dict(os.environ, OP_TOOLS_DEVICE="cpu", OP_CAPTURE_DIR=str(path))
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        )
        for rank in range(2)
    ]  # fmt: skip
    outs = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outs
    return [out.strip().splitlines()[-1] for out, _ in outs]


def test_every_rank_has_its_folder(folders):
    for rank, folder in enumerate(folders):
        assert folder.endswith(f"-rank{rank}")
        assert captures.open(folder).head["rank"] == str(rank)


def test_what_collectives_were_given_and_made(folders):
    for rank, folder in enumerate(folders):
        found = captures.open(folder)
        assert found.problems == []
        reduces = list(found.select(op="c10d::allreduce_"))
        assert len(reduces) == 2
        assert reduces[0].args[0][0].load().unique().tolist() == [rank + 1]
        assert reduces[0].after[0][0].load().unique().tolist() == [3]
        mul = next(found.select(op="aten::mul_.Tensor"))
        assert mul.args[0].hash == reduces[0].after[0][0].hash
        assert reduces[1].args[0][0].load().tolist() == [rank] * 5
        after = reduces[1].after[0][0]
        assert after.load().tolist() == [1] * 5
        (gather,) = found.select(op="c10d::allgather_")
        assert torch.equal(gather.args[1][0].load(), torch.full((2,), float(rank)))
        made = [t.load().tolist() for t in gather.after[0][0]]
        assert made == [[0, 0], [1, 1]]
    (received,) = captures.open(folders[1]).select(op="c10d::recv_")
    assert received.args[0][0].load().tolist() == [0, 0, 0]
    assert received.after[0][0].load().tolist() == [7, 7, 7]
