# SPDX-License-Identifier: Apache-2.0
"""DataLoader workers and pinned batches; npu tensors between processes."""

import pytest
import torch
from programs import program
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))


@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_batches(workers):
    torch.zeros(1, device="npu")
    total = 0.0
    for x, y in DataLoader(DATA, batch_size=4, num_workers=workers, pin_memory=True):
        assert x.is_pinned() and y.is_pinned()
        total += x.npu(non_blocking=True).sum().item() + y.to("npu", non_blocking=True).sum().item()
    assert total == sum(range(20)) + sum(range(10))


def test_workers_of_a_program_that_used_the_device(run_python):
    done = run_python(
        "import torch, torch_npu\n"
        "from torch.utils.data import DataLoader\n"
        "torch.randn(3, device='npu', requires_grad=True).sum().backward()\n"
        "for x in DataLoader(torch.arange(8), batch_size=2, num_workers=2, pin_memory=True):\n"
        "  print(x.npu().sum().item())"
    )
    assert done.stdout.split() == ["1", "5", "9", "13"]


SPAWN = program(__file__, "_spawn")


def test_queue_between_processes(tmp_path):
    import subprocess
    import sys

    script = tmp_path / "queue_script.py"
    script.write_text(SPAWN)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=200, cwd=tmp_path
    )
    assert done.stdout.strip() == "ok 0", done.stdout + done.stderr


def test_forking_pickler_copies():
    import pickle
    from multiprocessing.reduction import ForkingPickler

    x = torch.arange(4.0, device="npu").view(2, 2).t().requires_grad_()
    back = pickle.loads(ForkingPickler.dumps(x))
    assert back.is_npu and back.requires_grad and torch.equal(back.detach(), x.detach())
    with pytest.raises(RuntimeError, match="non-leaf"):
        ForkingPickler.dumps(x * 2)
