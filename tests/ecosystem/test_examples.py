# SPDX-License-Identifier: Apache-2.0
"""examples/train_ddp.py and train_fsdp.py: n ranks train as one process with n times the batch; a rank that
dies is started again and the run goes on from its checkpoint."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # several interpreters


def run(arguments, **variables):
    env = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def losses(text):
    return [float(x) for x in re.search(r"^loss\s+(.*)$", text, re.M)[1].split("->")]


def ranks(count, script, *arguments):
    launch = ["-m", "torch.distributed.run", f"--nproc_per_node={count}", "--standalone"]
    return run(
        [*launch, *arguments[1:], f"examples/{script}", *arguments[0]], NPU_HOST_DEVICES=str(count)
    )


@pytest.mark.full
@pytest.mark.parametrize("script, count", [("train_ddp.py", 4), ("train_fsdp.py", 2)])
def test_the_same_losses_as_one_process(script, count):
    found = ranks(count, script, ["--steps", "12"])
    assert f"ranks     {count}, 16 rows each" in found
    alone = run([f"examples/{script}", "--steps", "12", "--batch", str(16 * count)])
    assert len(losses(found)) == 5 and losses(found)[-1] < 3.3
    for a, b in zip(losses(found), losses(alone), strict=True):
        assert abs(a - b) < 2e-4


def test_two_ranks_train_as_one():
    """Two ranks on npu beside one process on the CPU that sees all rows."""
    sys.path.append(str(ROOT))
    import torch

    from benchmarks.models import next_token_loss
    from examples import parallel

    found = losses(ranks(2, "train_ddp.py", ["--steps", "4", "--batch", "4"]))
    model, data = parallel.model(), parallel.batches(parallel.Place(0, 1, torch.device("cpu")), 8)
    optimizer, wanted = torch.optim.AdamW(model.parameters(), lr=2e-3), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = next_token_loss(model, next(data))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wanted.append(loss.item())
    assert found == pytest.approx(wanted, abs=2e-4)


DIES_ONCE = """
import os, sys
sys.path.append({root!r})
from examples import parallel, train_ddp
import torch
usual = torch.nn.utils.clip_grad_norm_
calls = []
def dies(*args):
    calls.append(1)
    if len(calls) == 6 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os._exit(9)
    return usual(*args)
torch.nn.utils.clip_grad_norm_ = dies
train_ddp.main()
"""


@pytest.mark.full
def test_a_rank_that_dies_is_started_again(tmp_path):
    script = tmp_path / "dies_once.py"
    script.write_text(DIES_ONCE.format(root=str(ROOT)))
    steps = ["--steps", "8", "--batch", "4", "--save-every", "4"]
    saved = ["--checkpoint", str(tmp_path / "saved.pt")]
    launch = [
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--standalone",
        "--max-restarts=1",
    ]
    found = run([*launch, str(script), *steps, *saved], NPU_HOST_DEVICES="2")
    assert "from step 4" in found
    alone = run(["examples/train_ddp.py", "--steps", "8", "--batch", "8"])
    assert losses(found)[-1] == pytest.approx(losses(alone)[-1], abs=2e-4)
