# SPDX-License-Identifier: Apache-2.0
"""The gate: a training step of a clean program gets no error verdict, whatever model and dtype.

`make test` runs a sample, OPENNPU_TEST_FULL=1 every model in every way.
"""

import os

import op_tools
import pytest
import torch
from optools_helpers import quiet

pytest.importorskip("transformers")

from clean_models import MODELS

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
MODES = ("float32", "bf16 autocast", "bf16 weights", "fp16 GradScaler", "dropout")
# Each mode at least once, each family once.
SAMPLE = {
    ("llama", "bf16 weights"),
    ("gpt2", "dropout"),
    ("mixtral", "bf16 autocast"),
    ("t5", "float32"),
    ("whisper", "fp16 GradScaler"),
    ("vit", "bf16 weights"),
    ("mamba", "float32"),
    ("unet", "bf16 autocast"),
    ("resnet", "fp16 GradScaler"),
    ("lstm", "bf16 autocast"),
}
CASES = [(name, mode) for name in MODELS for mode in MODES if FULL or (name, mode) in SAMPLE]


def step(name, mode, device):
    """A function that makes one step, gradients clipped."""
    torch.manual_seed(0)
    model, loss = MODELS[name](0.2 if mode == "dropout" else 0.0)
    half = {"bf16 autocast": torch.bfloat16, "fp16 GradScaler": torch.float16}.get(mode)
    model = model.to(device).train()
    if mode == "bf16 weights":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler(device, enabled=mode == "fp16 GradScaler")

    def run():
        with torch.autocast(device, dtype=half or torch.bfloat16, enabled=half is not None):
            value = loss(model, device)
        optimizer.zero_grad()
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return value

    return run


@pytest.mark.parametrize("name, mode", CASES, ids=[f"{n} {m}" for n, m in CASES])
def test_a_clean_step_has_no_error(accelerator, name, mode):
    run = step(name, mode, accelerator)
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        value = run()
    assert torch.isfinite(value)
    errors = [(error["op"], error["reason"]) for error in tool.errors()]
    assert errors == []
    assert sum(row["pass"] for row in tool.table()) >= 50


@pytest.mark.parametrize("name", MODELS if FULL else ["vit"])
@pytest.mark.parametrize("mode", MODES if FULL else ["bf16 weights"])
def test_a_clean_step_on_the_cpu(on_cpu, name, mode):
    """PyTorch's own kernels: those that are imprecise are known, and no errors."""
    run = step(name, mode, "cpu")
    tool = quiet(op_tools.OpAutoCompare())
    try:
        with tool:
            run()
    except RuntimeError as error:
        if "primitive descriptor" not in str(error):
            raise
        pytest.skip("this machine's oneDNN has no such kernel")
    assert [(error["op"], error["reason"]) for error in tool.errors()] == []
