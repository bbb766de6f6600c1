# SPDX-License-Identifier: Apache-2.0
"""Lightning finds npu by itself and trains on it as on the CPU: one device, several, in each precision."""

import json
import os
import sys
from pathlib import Path

import interpreter
import pytest
import torch
import torch_npu  # noqa: F401
from gpu import chosen_first

pytest.importorskip("lightning", reason="pip install lightning")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="module")
def here():
    import lightning_run

    return lightning_run


@pytest.fixture(scope="module")
def on_cpu(here):
    return here.run({"accelerator": "cpu"})["losses"]


@chosen_first
@pytest.mark.library(
    "lightning", "Trainer on one npu, found by accelerator='auto', losses equal the CPU's"
)
def test_auto_finds_it(here, on_cpu):
    found = here.run({"devices": 1})
    assert found["where"] == "npu:0" and found["strategy"] == "SingleDeviceStrategy"
    torch.testing.assert_close(found["losses"], on_cpu, rtol=1e-5, atol=1e-6)


# float16 in `16-mixed` skips its first steps until the loss scale fits: judged by what it says below.
@pytest.mark.library("lightning", "precision bf16-mixed, bf16-true, 64-true on one npu")
@pytest.mark.parametrize(
    "precision, rtol", [("bf16-mixed", 0.02), ("bf16-true", 0.1), ("64-true", 1e-4)]
)
def test_precisions(here, on_cpu, precision, rtol):
    found = here.run({"accelerator": "npu", "devices": 1, "precision": precision})
    torch.testing.assert_close(found["losses"], on_cpu, rtol=rtol, atol=rtol / 10)
    if precision == "bf16-mixed":
        assert found["precision"] == "npu"
        assert found["losses"] != on_cpu  # it was not float32


@pytest.mark.library("lightning", "precision 16-mixed: loss scale on the device")
def test_half_with_a_loss_scale(here):
    import lightning.pytorch as pl

    trainer = pl.Trainer(accelerator="npu", devices=1, precision="16-mixed", logger=False)
    plugin = trainer.precision_plugin
    assert isinstance(plugin.scaler, torch.npu.amp.GradScaler)
    with plugin.forward_context():
        x = torch.ones(2, 2, device="npu")
        assert (x @ x).dtype == torch.float16
    losses = here.run({"accelerator": "npu", "devices": 1, "precision": "16-mixed"})["losses"]
    assert losses[-1] < losses[0] and all(torch.tensor(losses).isfinite())


def test_bad_devices_are_named(here):
    import lightning.pytorch as pl
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    count = torch.npu.device_count()
    for wrong, words in [
        (count + 3, f"there is no npu:{count}"),
        ([0, 0], "twice"),
        ("first", "is expected"),
        ([-2], "there is no npu:-2"),
    ]:
        with pytest.raises(MisconfigurationException, match=words):
            pl.Trainer(accelerator="npu", devices=wrong, logger=False)
    assert pl.Trainer(accelerator="npu", devices="-1", logger=False).num_devices == count
    assert pl.Trainer(accelerator="npu", devices="0,", logger=False).device_ids == [0]


def run_script(tmp_path, name="lightning.pytorch", **keywords):
    out = tmp_path / "out.json"
    env = {**os.environ, "NPU_HOST_DEVICES": "2", "OMP_NUM_THREADS": "1", "LIGHTNING_NAME": name}
    env.pop("PYTHONPATH", None)
    script = [str(HERE / "lightning_run.py"), str(out), json.dumps(keywords)]
    done = interpreter.run(script, env=env, cwd=tmp_path, timeout=200, exact=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


# Two processes that import Lightning.
@pytest.mark.slow
@pytest.mark.library(
    "lightning", "Trainer(accelerator='npu', devices=2, strategy='ddp'): losses of one CPU process"
)
def test_ddp(tmp_path, on_cpu):
    found = run_script(tmp_path, accelerator="npu", devices=2, strategy="ddp")
    assert found["strategy"] == "DDPStrategy" and found["where"] == "npu:0"
    torch.testing.assert_close(found["losses"], on_cpu, rtol=1e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.library("lightning", "strategy='fsdp' on two npus")
@pytest.mark.parametrize("precision, rtol", [("32-true", 1e-5), ("bf16-mixed", 0.03)])
def test_fsdp(tmp_path, on_cpu, precision, rtol):
    found = run_script(tmp_path, accelerator="npu", devices=2, strategy="fsdp", precision=precision)
    assert found["strategy"] == "FSDPStrategy"
    torch.testing.assert_close(found["losses"], on_cpu, rtol=rtol, atol=rtol)


@pytest.mark.full
@pytest.mark.library("pytorch-lightning", "the older name of the package, with ddp")
def test_older_name(tmp_path, on_cpu):
    found = run_script(tmp_path, "pytorch_lightning", accelerator="npu", devices=2, strategy="ddp")
    torch.testing.assert_close(found["losses"], on_cpu, rtol=1e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.library("lightning", "strategy='ddp_spawn' on two npus")
def test_spawned_processes(tmp_path):
    # The parent only waits, so it has no losses; it ends without an error.
    found = run_script(tmp_path, accelerator="npu", devices=2, strategy="ddp_spawn")
    assert found["strategy"] == "DDPStrategy"


@chosen_first
@pytest.mark.library("lightning", "Fabric: setup, backward, mixed precision on npu")
def test_fabric(here):
    from lightning.fabric import Fabric

    def train(**keywords):
        fabric = Fabric(devices=1, **keywords)
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4)
        model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        x = fabric.to_device(torch.randn(16, 8))
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            fabric.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        return str(fabric.device), losses

    where, wanted = train(accelerator="cpu")
    assert where == "cpu"
    where, found = train()
    assert where == "npu:0"
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    where, found = train(accelerator="npu", precision="bf16-mixed")
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.01)


def test_random_numbers_of_the_device_are_kept(here):
    from lightning.pytorch.utilities.seed import isolate_rng

    torch.zeros(1, device="npu")
    torch.manual_seed(3)
    with isolate_rng():
        first = torch.rand(4, device="npu")
    assert torch.equal(torch.rand(4, device="npu"), first)


def test_nothing_is_imported_for_others(tmp_path):
    code = "import sys, torch, torch_npu\nassert not any(m.startswith('lightning') for m in sys.modules)"
    done = interpreter.run(["-c", code], cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
