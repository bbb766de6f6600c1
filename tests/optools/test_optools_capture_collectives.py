# SPDX-License-Identifier: Apache-2.0
"""Two gloo processes: collectives are captured, with what they made."""

import os
import subprocess
import sys

import pytest
import torch
from op_tools import captures
from programs import program

WORKER = program(__file__, "_worker")


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
