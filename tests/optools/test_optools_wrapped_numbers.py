# SPDX-License-Identifier: Apache-2.0
"""Python numbers that PyTorch made tensors of stay numbers in a capture: they decide no dtype."""

import op_tools
import pytest
import torch
from op_tools import captures
from op_tools.captures import judging, replaying, reproducer
from op_tools.captures.replaying import Settings
from op_tools.captures.values import leaves
from op_tools.core import containers
from op_tools.run_op_from_data import cases
from optools_helpers import output, quiet


@pytest.fixture
def captured(device):
    """A clipped gradient: total_norm + 1e-6, max_norm / that."""
    layer = torch.nn.Linear(4, 3).to(device)
    layer(torch.ones(2, 4, device=device)).square().sum().backward()
    tool = quiet(op_tools.OpCapture())
    with tool:
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
        layer.weight.detach() * 2.5
        layer.weight.detach().half().sub(3)
    return tool.folder


def with_numbers(folder):
    found = [
        record
        for record in captures.open(folder)
        if any(ref.is_number for _, ref in leaves(record.args, ""))
    ]
    assert found, "no call with a wrapped number"
    return found


def test_a_number_comes_back_as_one(captured):
    for record in with_numbers(captured):
        (ref,) = [ref for _, ref in leaves(record.args, "") if ref.is_number]
        one = torch.ones(1, dtype=torch.float16)
        assert (one * ref.load()).dtype == torch.float16
        assert (one * containers.copy_tensor(ref.load(), "cpu")).dtype == torch.float16


def test_judged_as_it_ran(captured):
    for record in with_numbers(captured):
        found = judging.judge(record)
        assert found["verdict"] == "pass", (record.op, found)


def test_replayed_as_it_ran(captured, device):
    outcomes = {}
    for where, case, why in cases(captured, device):
        assert case is not None, why
        made = replaying.replay(where, case, Settings(device))
        outcomes[case.name, where] = made.outcome, made.notes
    assert not [o for o in outcomes.items() if o[1][0] in ("error", "failed")], outcomes


def test_in_a_report(captured, capsys):
    code, text = output(capsys, "report", captured, "-o", "page.html", "--judge")
    assert code == 0 and " error" not in text.out, text.out


def test_a_reproducer_gives_the_number(captured, monkeypatch):
    monkeypatch.setattr("sys.argv", ["reproduce.py"])
    record = with_numbers(captured)[0]
    path = reproducer.write(record, "repro")
    with open(path, encoding="utf-8") as file:
        source = file.read()
    scope = {"__file__": path, "__name__": "__main__"}
    exec(compile(source, path, "exec"), scope)
    assert scope["got"][0].dtype == record.load_outputs()[0].dtype
