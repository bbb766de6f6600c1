# SPDX-License-Identifier: Apache-2.0
"""What the core counts, keeps and guards: limits, queues, memory, numbers of operators."""

import os
import textwrap
import threading
import time

import interpreter
import op_tools
import pytest
import torch
from op_tools import _C, captures
from optools_helpers import capture_of_calls
from programs import program


def run_alone(body, **env):
    """In a process of its own, where no tool ran before. Its output."""
    done = interpreter.run(
        ["-c", textwrap.dedent(body)],
        env=dict(os.environ, OP_TOOLS_DEVICE="cpu") | env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def skips(tool, op):
    return {why: count for name, why, count in tool.skips() if name == op}


# ---- capture -------------------------------------------------------------------
def test_the_limit_of_calls_holds_for_the_first_tool_of_a_process(on_cpu):
    out = run_alone(
        """
        from op_tools import captures
        from optools_helpers import capture_of_calls
        tool = capture_of_calls(9, max_calls=3)
        print("calls", len(list(captures.open(tool.folder).select(op="aten::neg"))))
        """,
        PYTHONPATH=os.path.dirname(__file__),
    )
    assert "calls 3" in out


def test_the_limit_of_calls_holds_for_operators_made_later(on_cpu):
    tool, other = op_tools.OpCapture(), op_tools.OpObserve()
    tool.max_calls = 2
    x = torch.ones(4)
    with torch.library._scoped_library("optools_later", "DEF") as library, tool:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda t: t.new_full((4,), 2.0), "CPU")
        with other:  # which makes the operator known
            for _ in range(5):
                torch.ops.optools_later.twice(x)
    found = captures.open(tool.folder)
    assert len(list(found.select(op="optools_later::twice"))) == 2


def test_the_limit_of_bytes_counts_records(on_cpu):
    """Calls of a few bytes each, many of them."""
    tool = capture_of_calls(12000, max_mb=1)
    totals = tool.totals()
    assert totals["refused"] > 0
    assert totals["log_bytes"] <= (1 << 20) + (1 << 17)  # and the frames' heads
    assert "1 MiB" in captures.open(tool.folder).end["why"]


def test_contents_that_could_not_be_queued_are_stored_the_next_time(on_cpu):
    out = run_alone(
        program(__file__, "_contents_that_could_not_be_queued_are_stored_the_next_time")
    )
    assert "reason could not be read" in out
    assert "same True" in out


def test_a_capture_without_a_call_has_no_records(on_cpu):
    tool = op_tools.OpCapture()
    with tool:
        pass
    assert tool.totals()["records"] == 0
    assert captures.open(tool.folder).end["records"] == 0


def test_the_generator_of_the_device_that_draws(accelerator):
    if accelerator != "npu":
        pytest.skip("needs two devices, which only npu can make up")
    out = run_alone(
        program(__file__, "_the_generator_of_the_device_that_draws"),
        NPU_HOST_DEVICES="2",
        OP_TOOLS_DEVICE="npu",
    )
    assert "device 1" in out


# ---- compare -------------------------------------------------------------------
@pytest.mark.parametrize("view", [torch.conj, lambda x: x.conj().imag])
def test_views_of_other_bits_are_not_seen_to_change(on_cpu, view):
    """A conjugate or negative view is copied with its bits resolved."""
    tool = op_tools.OpAutoCompare()
    x = torch.randn(64, 4, dtype=torch.complex64)
    with tool:
        view(x).mul(2)
        torch.mm(view(x).mT, view(x))
    assert tool.findings() == []


def test_an_out_argument_of_another_size_has_a_reference(on_cpu):
    tool = op_tools.OpAutoCompare()
    a, out = torch.randn(200, 200), torch.empty(100, 100)
    with tool:
        torch.add(a, a, out=out)
    assert tool.findings() == [] and skips(tool, "aten::add.out") == {}
    (row,) = (row for row in tool.table() if row["op"] == "aten::add.out")
    assert row["pass"] == 1


def test_views_are_judged_and_counted(on_cpu):
    tool = op_tools.OpAutoCompare()
    x = torch.randn(6, 4)
    with tool:
        for _ in range(5):
            x.view(4, 6)
        during = {row["op"]: row["pass"] for row in tool._core.sums()}
    assert during["aten::view"] == 5  # no queue to wait for
    assert {row["op"]: row["pass"] for row in tool.table()}["aten::view"] == 5


def test_what_cannot_be_read_is_skipped_with_the_reason(on_cpu):
    tool = op_tools.OpAutoCompare()
    sparse = torch.eye(4).to_sparse()
    gone = torch.ones(10)
    with tool:
        torch.sparse.mm(sparse, torch.ones(4, 4))
        gone.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="must match"):
            torch.add(gone, torch.ones(3))
    assert not tool._last.failure
    reasons = {why for _, why, _ in tool.skips()}
    assert "sparse" in reasons and "its memory was freed" in reasons


def test_judging_captured_calls_while_operators_come(on_cpu):
    """Numbers of operators are asked for by several threads while the list grows."""
    names = _C.operator_names()
    op = names.index("aten::add.Tensor")
    x = torch.ones(2)
    done, problems = threading.Event(), []

    def judge():
        while not done.is_set():
            found = _C.judge_call(op, [x, x, 1], [x + x], {}, True)
            if found["verdict"] != "pass":
                problems.append(found)

    threads = [threading.Thread(target=judge) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        with torch.library._scoped_library(f"optools_grow{turn}", "DEF") as library:
            library.define("f(Tensor x) -> Tensor")
            _C.operator_names()
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []


def test_known_dtypes_do_not_grow_with_the_integers(on_cpu):
    op = _C.operator_names().index("aten::cumsum")
    x = torch.ones(3, 3)
    sizes = set()
    for index in range(40):
        x = torch.ones((1,) * (index % 8) + (3, 3))
        dim = index % 8
        _C.judge_call(op, [x, dim, None], [x.cumsum(dim)], {}, False)
        sizes.add(_C.known_dtypes())
    assert len(sizes) == 1


def test_calls_that_end_while_the_tool_stops_are_judged(on_cpu):
    """Put on the queue while it drains, and after: nothing hangs, nothing is lost."""
    tool = op_tools.OpAutoCompare()
    tool.threads = 1
    main = threading.main_thread()
    with torch.library._scoped_library("optools_slow", "DEF") as library:
        library.define("wait(Tensor x, float user, float judge) -> Tensor")

        def wait(x, user, judge):
            mine = threading.current_thread()
            ours = mine is main or mine.name.startswith("user")
            time.sleep(user if ours else judge)
            return x + 1

        library.impl("wait", wait, "CPU")
        slow = torch.ops.optools_slow.wait
        x = torch.ones(3)
        users = [
            threading.Thread(name=f"user{i}", target=slow, args=(x, seconds, 0.0))
            for i, seconds in enumerate((1.6, 2.6))
        ]
        tool.start()
        slow(x, 0.0, 2.0)  # judged for two seconds
        for user in users:
            user.start()
        time.sleep(0.2)
        core = tool._core
        tool.report = lambda: None
        tool.stop()  # gives up on the users after a second, then drains
        for user in users:
            user.join()
        late = threading.Thread(target=core.wait, daemon=True)
        late.start()
        late.join(20)
        assert not late.is_alive()
        counts = {row["op"]: row["pass"] for row in core.sums()}
    assert counts["optools_slow::wait"] == 3


# ---- Python's objects ------------------------------------------------------------
def test_an_observer_may_replace_itself(on_cpu):
    """It is kept alive while it is called."""
    from op_tools import _C as core

    tool = op_tools.OpObserve()
    calls = []

    class Observer:
        def __call__(self, name, call, function, args, kwargs):
            core.set_api_observer(None)
            calls.append((name, self.__class__.__name__))

    x = torch.ones(2)
    with tool:
        core.set_api_observer(Observer())
        try:
            core.call_api(torch.neg, core.api_number("torch.neg"), (x,), {})
        finally:
            core.set_api_observer(None)
    assert calls == [("torch.neg", "Observer")]
