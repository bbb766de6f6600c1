# SPDX-License-Identifier: Apache-2.0
"""op-tools replay: E decides, atol and rtol are said beside it."""

import os
import re
import warnings

import op_tools
import pytest
import torch
from op_tools import _C, captures
from op_tools.captures import replaying
from op_tools.captures.replaying import Settings
from op_tools.cli import main
from op_tools.ditorch_compat import ditorch_folders
from op_tools.run_op_from_data import cases
from op_tools.save_op_args import write_args
from op_tools.tools.capture import head
from optools_devices import KEYS


def capture(function, *args):
    tool = op_tools.OpCapture()
    with tool:
        function(*args)
    return tool.folder


def replays(folder, device="cpu", **settings):
    """{operator: what came of its last call}."""
    found = {}
    for where, case, why in cases(folder, device):
        assert case is not None, why
        found[case.name] = replaying.replay(where, case, Settings(device, **settings))
    return found


def run(capsys, *arguments):
    capsys.readouterr()
    code = main(["replay", *map(str, arguments)])
    return code, capsys.readouterr().out


def edited(folder, op, change):
    """The same call with another captured result."""
    record = next(captures.open(folder).select(op=op))
    target = f"edited{len(captures.find('.'))}"
    os.mkdir(target)
    writer = _C.CaptureWriter(target, head())
    writer.define("op", 1, record.op, record.schema)
    args, outputs = record.load_arguments(), record.load_outputs()
    writer.add({"number": 1, "op": 1, "args": args, "out": [change(x) for x in outputs]})
    writer.close()
    return target


@pytest.fixture
def wrong_kernel(device):
    """aten::mm whose last row is a ten-thousandth too large: no atol or rtol sees it."""
    library = torch.library.Library("aten", "IMPL")

    def wrong(a, b):
        result = (a.unsqueeze(-1) * b).sum(1)
        if a.dtype == torch.float32:
            result[-1] *= 1.0001
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("mm", wrong, KEYS[device])
    yield device
    library._destroy()


def test_a_right_call_passes_with_its_e(device):
    torch.manual_seed(0)
    x = torch.randn(8, 8, device=device)
    made = replays(capture(torch.mm, x, x), device)["aten::mm"]
    assert made.outcome == "pass" and made.allclose is True
    assert 0 <= made.e <= 1 and 0 <= made.captured_e <= 1


def test_e_sees_what_tolerances_do_not(wrong_kernel, capsys, monkeypatch):
    device = wrong_kernel
    torch.manual_seed(0)
    x = torch.randn(8, 8, device=device)
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "1e-3,1e-3")
    folder = capture(torch.mm, x, x)  # wrong when captured, and wrong again
    made = replays(folder, device)["aten::mm"]
    assert made.outcome == "error" and made.allclose is True
    assert made.e > 3 and made.captured_e > 3
    flags = ["--device", device, "--in-process"]  # where the wrong kernel is
    code, text = run(capsys, folder, *flags)
    assert code == 1 and re.search(
        r"aten::mm: here error: .*\(E \S+\); what was captured: error", text
    )
    code, text = run(capsys, folder, *flags, "--judge", "allclose")
    assert code == 0 and ", 0 differ or failed" in text


def test_a_wrong_result_that_was_captured_is_told_apart(capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    folder = edited(capture(torch.sin, torch.ones(100)), "aten::sin", lambda x: x * 1.001)
    made = replays(folder)["aten::sin"]
    assert made.outcome == "error" and made.e <= 1 and made.captured_e > 3
    (note,) = made.notes
    assert note.startswith("what was captured: error")


def test_tolerances_may_be_wrong_where_e_is_right(monkeypatch, capsys):
    """Cancellation: results far apart, both as near as rounding allows."""
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    x = torch.tensor([1e8, 1.0, -1e8, 1e-3])
    folder = edited(capture(torch.sum, x), "aten::sum", lambda y: torch.tensor(1.0))
    made = replays(folder)["aten::sum"]
    assert made.outcome == "pass" and made.allclose is False
    code, text = run(capsys, folder, "--device", "cpu")
    assert code == 0
    (row,) = [line for line in text.splitlines() if "aten::sum" in line]
    columns = [cell.strip() for cell in row.strip("|").split("|")]
    assert columns[1] == "1" and columns[-2] == "1"  # passed; not allclose


def test_every_kernel_of_an_api_is_judged(wrong_kernel, capsys):
    """ditorch's folders: no operator is named, and the captured gradient is as wrong."""
    device = wrong_kernel
    torch.manual_seed(0)
    a = torch.randn(4, 6, requires_grad=True)
    result = (a.detach().unsqueeze(-1) * torch.eye(6)).sum(1)
    write_args("case/input", "torch.matmul", "1/input", (a, torch.eye(6)), {})
    write_args("case/output", "torch.matmul", "1/output", (result,), {})
    (folder,) = ditorch_folders.find("case")
    made = replaying.replay(folder, ditorch_folders.load(folder), Settings(device))
    assert made.outcome == "error" and made.e > 3, made
    assert made.captured_e is None
    assert "aten::mm" in made.notes[0]


def test_backward_kernels_are_judged_too(device):
    x = torch.randn(4, requires_grad=True)
    write_args("case/input", "torch.sin", "1/input", (x,), {})
    write_args("case/output", "torch.sin", "1/output", (x.detach().sin(),), {})
    write_args("case/grad_outputs", "torch.sin", "1/grad_outputs", (torch.ones(4),), {})
    seen = []
    plain = replaying._worst_kernel

    def keep(rows):
        seen.extend(rows)
        return plain(rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "_worst_kernel", keep)
        made = replaying.replay("case", ditorch_folders.load("case"), Settings(device))
    assert made.outcome == "pass"
    assert {row["phase"] for row in seen} == {"forward", "backward"}


def test_a_default_that_pytorch_keeps_as_a_number(monkeypatch):
    """Of a dtype: the operator's own default is none that a file made up."""
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    name = "torch.ops.aten.tril_indices.default"
    write_args("case/input", name, "1/input", (3, 3), {})
    write_args("case/output", name, "1/output", (torch.tril_indices(3, 3),), {})
    made = replaying.replay("case", ditorch_folders.load("case"), Settings("cpu"))
    assert made.outcome == "pass" and made.e == 0 and made.captured_e == 0


def test_what_cannot_be_judged_is_compared_or_said_not_to_be(monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    folder = capture(lambda: (torch.empty(3), torch.ones(2, 2).t()))
    found = replays(folder)
    assert found["aten::empty.memory_format"].outcome == "not compared"
    assert found["aten::t"].e is None
    assert run(capsys, folder, "--device", "cpu")[0] == 0


def test_flags(capsys):
    with pytest.raises(SystemExit):
        main(["replay", ".", "--judge", "guess"])
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    text = capsys.readouterr().out
    for flag in ("--device", "--judge", "--op", "--limit", "--seed", "--allow"):
        assert flag in text
