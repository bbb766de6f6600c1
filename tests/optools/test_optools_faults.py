# SPDX-License-Identifier: Apache-2.0
"""OpAutoCompare finds seeded faults, and raises no alarm over right kernels."""

from pathlib import Path

import fault_generator
import faults
import op_tools
import pytest
import torch
from optools_helpers import kernel

from benchmarks import models


@pytest.fixture(autouse=True)
def no_tf32():
    """cuDNN's default is TF32, which would be found."""
    with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False):
        yield


def operator(fault):
    return "aten::" + fault.op


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_a_seeded_fault_is_found(accelerator, fault):
    tool = op_tools.OpAutoCompare()
    with kernel(fault.op, fault.kernel, accelerator), tool:
        fault.call(accelerator)
    found = [error for error in tool.errors() if error["op"] == operator(fault)]
    assert found, (tool.table(), tool.skips())
    assert fault.says in found[0]["reason"], found[0]["reason"]
    others = [error["op"] for error in tool.errors() if error["op"] != operator(fault)]
    assert not others, others


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_without_the_fault_there_is_no_alarm(accelerator, fault):
    tool = op_tools.OpAutoCompare()
    with tool:
        fault.call(accelerator)
    assert tool.findings() == []
    judged = {row["op"] for row in tool.table() if row["pass"]}
    assert operator(fault) in judged, (judged, tool.skips())


# Of a magnitude no clean kernel has.
DRAWN = [fault_generator.draw(seed, (8192, 65536)) for seed in range(24)]


@pytest.mark.parametrize("drawn", DRAWN, ids=str)
def test_a_fault_drawn_at_random_is_found(accelerator, drawn):
    wrong = faults.computed(drawn.kernel(drawn.target.overload))
    args = faults.back(drawn.arguments(), torch.empty(0, device=accelerator))
    tool = op_tools.OpAutoCompare()
    with kernel(drawn.target.op, wrong, accelerator), tool:
        drawn.target.overload(*args)
    assert [error["op"] for error in tool.errors()] == ["aten::" + drawn.target.op]


def test_faults_at_random_by_magnitude():
    """Less than half a unit is rounded away; far above the bar nothing is missed (docs/tools-reference.md)."""
    for seed in range(60):
        small = fault_generator.draw(seed, (0.25,))
        assert fault_generator.verdict(small) == "pass", small
    drawn = [fault_generator.draw(seed, (65536,)) for seed in range(200)]
    assert not [str(d) for d in drawn if fault_generator.verdict(d) != "error"]


def shares_of(document):
    """{family: percentages} of the table in a document."""
    rows = (line.strip("|").split("|") for line in document.read_text().splitlines())
    return {
        name.strip(): [int(cell.strip(" %")) for cell in cells]
        for name, *cells in rows
        if len(cells) == len(fault_generator.MAGNITUDES) and all("%" in c for c in cells)
    }


@pytest.mark.parametrize("name", ["tools-reference.md", "zh-CN/tools-reference.md"])
def test_the_table_of_miss_rates_is_what_is_measured(name):
    """Within what another processor's summation order may change."""
    shown = list(shares_of(Path(__file__).parents[2] / "docs" / name).values())
    measured = [[100 * share for share in shares] for _, shares in fault_generator.table()]
    assert len(shown) == len(measured) == 4
    for ours, theirs in zip(shown, measured, strict=True):
        assert ours == pytest.approx(theirs, abs=5), (ours, theirs)


# Fused forms that the CPU, or the device, has alone.
ONLY_THERE = {
    "aten::mkldnn_rnn_layer",
    "aten::_cudnn_rnn",
    "aten::cudnn_batch_norm",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_flash_attention",
}


def train(name, device, autocast=False):
    step = models.build(name).to(device)

    def run():
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            loss = step.case.loss(step.model, *step.batch)
        step.optimizer.zero_grad()
        loss.backward()
        step.optimizer.step()
        return loss

    for _ in range(2):
        run()
    return run


@pytest.mark.parametrize(
    "name, autocast",
    [
        ("gpt-tiny", False),
        ("resnet-narrow", False),
        ("lstm", False),
        ("gpt-tiny-dropout", True),
    ],
    ids=["gpt", "convolution net", "lstm", "bf16 autocast"],
)
def test_no_false_alarm(device, name, autocast):
    tool = op_tools.OpAutoCompare()
    run = train(name, device, autocast)
    with tool:
        loss = run()
    assert torch.isfinite(loss)
    assert tool.findings() == []
    table = tool.table()
    judged = sum(row["pass"] for row in table)
    assert judged >= 50
    # What is skipped is known and little: it must not grow unseen.
    nothing = ("returns no tensor", "computes nothing")
    skipped = {op for op, why, _ in tool.skips() if not why.startswith(nothing)}
    unjudged = {op for op in skipped if not op.startswith(("aten::empty", "aten::new_empty"))}
    assert {op.removesuffix("_backward") for op in unjudged} <= ONLY_THERE, tool.skips()
