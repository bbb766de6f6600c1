# SPDX-License-Identifier: Apache-2.0
"""Compiled graphs on a driver with graphs of its own (capture/1): frames in a row are launched as one,
recorded again where addresses changed, with the bits of a replay frame by frame."""

import pytest
from faulty import discrete_environment
from programs import program

HEAD = program(__file__, "_head")


@pytest.fixture
def captured(run_python):
    def run(code, capture="1", check=True, **more):
        variables = discrete_environment() | {
            "NPU_PROFILE": "none", "NPU_DISCRETE_DELAY_US": "50", "NPU_DISCRETE_CAPTURE": capture
        }  # fmt: skip
        return run_python(HEAD + code, check=check, **variables | more)

    return run


BODY = """
def body(x, w, state):
    y = torch.relu(x @ w) + 1
    state.add_(y.sum())
    return y.softmax(-1) @ w.t(), y * state
"""


def test_frames_in_a_row_are_launched_as_one(captured):
    captured(
        BODY
        + """
function = compiled(body)
w = torch.randn(16, 32).npu()
a, b = torch.zeros((), device="npu"), torch.zeros((), device="npu")
for turn in range(6):
    x = torch.randn(8, 16).npu()
    got, wanted = function(x, w, a), body(x, w, b)
    for g, e in zip((*got, a), (*wanted, b)):
        assert torch.equal(g.cpu(), e.cpu()), turn
assert total("replayed") >= 4 and total("islands") == 0
assert graphs()[1] == total("replayed"), graphs()  # one launch each
"""
    )


def test_other_addresses_are_recorded_again(captured):
    """Four sets of addresses in turn are kept; results that stay alive get memory of their own."""
    captured(
        BODY
        + """
function = compiled(body)
w, state = torch.randn(16, 32).npu(), torch.zeros((), device="npu")
other = torch.zeros((), device="npu")
xs = [torch.randn(8, 16).npu() for _ in range(12)]
kept = []
for x in xs:
    kept.append((function(x, w, state), body(x, w, other)))
for got, wanted in kept:
    for g, e in zip(got, wanted):
        assert torch.equal(g.cpu(), e.cpu())
recorded, launched, updated = graphs()
assert recorded > 4 and updated > 0 and launched >= 8, graphs()
# New addresses at every run: after some of them, frames go one by one.
for x in xs * 2:
    kept.append((function(x, w, state), body(x, w, other)))
assert graphs()[0] <= recorded + 8, graphs()
for got, wanted in kept:
    for g, e in zip(got, wanted):
        assert torch.equal(g.cpu(), e.cpu())
"""
    )


def test_streams_have_graphs_of_their_own(captured):
    """Random numbers too: each launch reads those that were put there for it."""
    captured(program(__file__, "_streams_have_graphs_of_their_own"))


def test_a_broken_capture_falls_back_and_says_so_once(captured):
    done = captured(
        BODY
        + """
function = compiled(body)
w = torch.randn(16, 32).npu()
a, b = torch.zeros((), device="npu"), torch.zeros((), device="npu")
for turn in range(5):
    x = torch.randn(8, 16).npu()
    got, wanted = function(x, w, a), body(x, w, b)
    for g, e in zip((*got, a), (*wanted, b)):
        assert torch.equal(g.cpu(), e.cpu()), turn
second = compiled(lambda x: torch.relu(x + 1) * 2 - x)
for turn in range(3):
    assert torch.equal(second(w).cpu(), (torch.relu(w + 1) * 2 - w).cpu())
assert graphs()[1] == 0 and total("replayed") >= 4, graphs()
""",
        capture="broken",
    )
    assert done.stderr.count("did not record frames into a graph") == 1, done.stderr


def test_it_can_be_switched_off(captured):
    captured(
        BODY
        + """
function = compiled(body)
w, state = torch.randn(16, 32).npu(), torch.zeros((), device="npu")
for _ in range(3):
    function(torch.randn(8, 16).npu(), w, state)
assert total("replayed") >= 1 and graphs()[0] == 0, graphs()
""",
        NPU_GRAPH_OFF="capture",
    )


def test_recordings_that_are_gone_give_their_memory_back(captured):
    captured(
        BODY
        + """
w, state = torch.randn(16, 32).npu(), torch.zeros((), device="npu")

def once():
    torch._dynamo.reset()
    function = compiled(body)
    for _ in range(3):
        function(torch.randn(8, 16).npu(), w, state)
    del function
    torch._dynamo.reset()
    gc.collect()

once()
before = torch.npu.memory_allocated()
for _ in range(3):
    once()
assert torch.npu.memory_allocated() == before, (torch.npu.memory_allocated(), before)
"""
    )


@pytest.mark.parametrize("capture", ["", "1"])
def test_frames_with_a_host_workspace_are_recorded(run_python, capture):
    """The driver's own product keeps its sizes in pinned memory, which has to be there when it runs, late."""
    variables = discrete_environment(kernels=False) | {"NPU_DISCRETE_DELAY_US": "2000"}
    if capture:
        variables["NPU_DISCRETE_CAPTURE"] = capture
    run_python(
        HEAD
        + """
function = compiled(lambda x, w: (x @ w + x) @ w)
w, kept = torch.randn(16, 16), []
on_npu = w.npu()
for turn in range(8):
    x = torch.randn(16, 16)
    kept.append((function(x.npu(), on_npu), (x.double() @ w.double() + x) @ w.double()))
for got, wanted in kept:
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-3)
assert total("islands") == 0 and total("replayed") >= 6, (total("islands"), total("replayed"))
assert (graphs()[1] > 0) == bool(os.environ.get("NPU_DISCRETE_CAPTURE")), graphs()
""",
        **variables,
    )
