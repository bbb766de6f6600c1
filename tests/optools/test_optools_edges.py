# SPDX-License-Identifier: Apache-2.0
"""Cases at the edges: views that share memory, devices that are not the current one, many modules,
much generated code, addresses that are used again, the end of the process."""

import math
import os
import textwrap
from pathlib import Path

import interpreter
import op_tools
import pytest
import torch
from op_tools import _C, captures
from optools_devices import DEVICES
from optools_helpers import quiet
from programs import program
from torch import nn


def run_script(text, exact=False, **environment):
    """A script in a process of its own, in the test's folder."""
    Path("script.py").write_text(textwrap.dedent(text))
    done = interpreter.run(
        ["script.py"], env={**os.environ, **environment}, timeout=120, exact=exact
    )
    return done.returncode, done.stdout, done.stderr


# ---- captures ---------------------------------------------------------------------------------
def test_captured_conjugate_and_negative_views(device):
    """A view is kept as its memory and a flag, with or without gaps in that memory."""
    z = torch.randn(6, 5, dtype=torch.complex64).to(device)
    views = [
        z.conj(),
        z[::2, 1:4].conj(),
        z.conj().imag,
        z.conj().imag[:, ::2],
        z[1:, ::2].T.conj(),
    ]
    tool = quiet(op_tools.OpCapture())
    tool.views = True
    with tool:
        for view in views:
            torch.ops.aten.alias(view)
    records = list(captures.open(tool.folder).select(op="aten::alias"))
    for record, view in zip(records, views, strict=True):
        kept = record.args[0].load()
        assert (kept.is_conj(), kept.is_neg()) == (view.is_conj(), view.is_neg())
        want = view.cpu().resolve_conj().resolve_neg()
        assert torch.equal(kept.resolve_conj().resolve_neg(), want)


# ---- time ---------------------------------------------------------------------------------------
@pytest.mark.skipif("npu" not in DEVICES, reason="needs two devices, which the npu plugin can have")
def test_time_of_a_call_on_another_device():
    """The current device's events say nothing about a kernel of another one."""
    code, out, err = run_script(
        program(__file__, "_time_of_a_call_on_another_device"),
        exact=True,
        NPU_HOST_ASYNC="1",
        NPU_HOST_DEVICES="2",
        OP_TOOLS_DEVICE="npu",
    )
    assert code == 0, err
    here, there = map(int, out.split())
    assert there > here / 10, out


# ---- OpFallback ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fallback_keeps_shared_memory_shared(accelerator, dtype):
    """A tensor and its view are one memory on the cpu too: both are written, one after the other."""
    if accelerator == "cuda":
        pytest.skip("its kernel adds to a whole list at once")

    def run():
        x = torch.arange(6.0, device=accelerator, dtype=dtype)
        torch._foreach_add_([x, x.view(2, 3), x[2:5]], 1.0)
        y = torch.ones(4, 4, device=accelerator, dtype=dtype)
        y[0].addmv_(y[1:, :3].T[:1].expand(4, 3), y[3, :3])
        return x.cpu(), y.cpu()

    want = run()
    tool = quiet(op_tools.OpFallback())
    with tool:
        got = run()
    assert any(op == "aten::_foreach_add_.Scalar" and not why for op, why, _ in tool.counts())
    for mine, theirs in zip(got, want, strict=True):
        assert torch.equal(mine, theirs), (mine, theirs)


def test_fallback_refuses_what_the_device_refuses(accelerator):
    """Overlapping operands of an in-place operator are an error; two copies would hide it."""
    tool = quiet(op_tools.OpFallback())
    with tool, pytest.raises(RuntimeError, match="memory location"):
        x = torch.arange(6.0, device=accelerator)
        x[1:].add_(x[:-1])


# ---- many modules, much code ----------------------------------------------------------------------
def test_modules_beyond_the_first_thousands(on_cpu):
    """Names get numbers for the life of the process; a selection has no last one."""
    for i in range(9000):
        _C.module_number(f"filler.{i}")

    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.late_part = nn.Linear(2, 2)

        def forward(self, x):
            return self.late_part(x).sin()

    tool = quiet(op_tools.OpObserve())
    tool.modules = "late_part"
    model = Late()
    with tool:
        model(torch.ones(1, 2))
    assert "aten::addmm" in tool.counts() and "aten::sin" not in tool.counts()


def test_call_sites_of_generated_code_are_bounded(on_cpu):
    """Programs that compile source again and again do not fill the table, or keep their code."""
    x = torch.ones(1)

    def calls(count, name):
        for i in range(count):
            exec(compile("x.neg()", name.format(i), "exec"), {"x": x})

    tool = quiet(op_tools.OpObserve())
    tool.call_sites = True
    with tool:
        calls(200, "<again>")
        before = _C.site_count()
        calls(3000, "<again>")
        assert _C.site_count() == before
    last = tool.records()[-1]["site"]
    assert _C.site(last)[0] == "<again>"
    with tool:
        calls(100, "<{}>")
    assert _C.site(tool.records()[-1]["site"]) == ("<99>", 1, "<module>")


# ---- overflow: addresses used again ----------------------------------------------------------------
def test_a_new_tensor_at_an_old_address_is_looked_at(on_cpu):
    """What was clean there is gone: its reader has not made the NaN."""
    tool = quiet(op_tools.OpOverflowCheck())
    with tool:
        for _ in range(50):
            old = torch.zeros(8)
            old.add_(1)  # seen, clean, written once
            del old
            fresh = torch.frombuffer(bytearray(32), dtype=torch.float32)
            fresh.numpy()[3] = math.nan  # no kernel wrote it
            fresh.mul_(2)
            del fresh
    mistaken = sum(e["first_bad"] for e in tool.events() if e["op"].startswith("aten::mul_"))
    assert mistaken == 0


# ---- the end of the process -------------------------------------------------------------------------
def test_a_failed_comparison_ends_like_any_program():
    """Exit code 1, after every handler and with every file written."""
    code, out, err = run_script(
        program(__file__, "_a_failed_comparison_ends_like_any_program"),
        exact=True,
        OP_AUTOCOMPARE_RAISE="1",
        OP_TOOLS_DEVICE="cpu",
    )
    assert code == 1, (out, err)
    assert "wrong results" in err
    assert "first handler ran" in out
    assert Path("buffered.txt").read_text() == "whole"
