# SPDX-License-Identifier: Apache-2.0
"""torch.npu.graph on a driver with graphs of its own (capture/1): tests/drivers/discrete.

Its memory cannot be read by host code and its streams run on threads of their own, late; expected
values are computed by hand.
"""

import pytest
from faulty import built_driver

HEAD = """
import ctypes, torch, torch_npu
driver = ctypes.CDLL({driver!r})

def graphs():
    out = (ctypes.c_uint64 * 3)()
    driver.npu_discrete_graphs(out)
    return tuple(out)  # recorded, launched, updated

x = torch.full((64,), 2.0).npu()
y = torch.full((64,), 3.0).npu()
graph = torch.npu.NPUGraph()

def is_all(tensor, number):
    assert tensor.cpu().tolist() == [number] * tensor.numel(), (tensor.cpu(), number)
"""


@pytest.fixture
def on_discrete(run_python):
    driver = built_driver("discrete")

    def run(code, capture="1", **more):
        variables = {"NPU_DRIVER": driver, "NPU_FALLBACK": "silent", "NPU_DISCRETE_DELAY_US": "50"}
        if capture:
            variables["NPU_DISCRETE_CAPTURE"] = capture
        return run_python(HEAD.format(driver=driver) + code, **variables | more)

    return run


CHAIN = """
with torch.npu.graph(graph):
    a = x + y
    b = a + y
    c = b + a
for number in (2.0, 5.0, -1.0, 7.5):
    x.fill_(number)
    graph.replay()
    is_all(c, 2 * number + 9)
    is_all(b, number + 6)
"""


def test_frames_are_launched_as_one_graph(on_discrete):
    on_discrete(
        CHAIN + "assert graphs()[0] == 1 and graphs()[1] >= 3 and graphs()[2] == 0, graphs()"
    )


@pytest.mark.parametrize("capture", ["", "broken"])
def test_without_device_graphs_frames_run_one_by_one(on_discrete, capture):
    """The driver has none, or cannot record."""
    on_discrete(CHAIN + "assert graphs()[1] == 0, graphs()", capture)


def test_operators_of_the_cpu_stand_between_two_graphs(on_discrete):
    on_discrete("""
with torch.npu.graph(graph):
    a = x + y
    b = a + a
    c = torch.tanh(b)  # no kernel of the driver's
    d = c + c
    e = d + y
for number in (0.25, 0.5, -0.125):
    x.fill_(number)
    graph.replay()
    wanted = 2 * torch.tanh(torch.tensor(2 * (number + 3), dtype=torch.float64)) + 3
    torch.testing.assert_close(e.cpu().double(), wanted.expand(64), rtol=1e-6, atol=1e-6)
assert graphs()[0] == 2 and graphs()[1] >= 4, graphs()
""")


def test_memory_that_moved_updates_the_graph(on_discrete):
    on_discrete("""
with torch.npu.graph(graph):
    a = x + y
    b = a + a
graph.replay()
graph.replay()
is_all(b, 10)
assert graphs()[2] == 0
kept = x.data
x.data = torch.full((64,), 10.0).npu()
graph.replay()
is_all(b, 26)
assert graphs()[2] == 1, graphs()
""")


@pytest.mark.parametrize("capture", ["", "1"])
def test_replays_and_other_work_keep_their_order(on_discrete, capture):
    """Replays between ordinary work on two streams, results read at the end. What a capture puts
    back on its own stream is there for the first of them."""
    on_discrete(
        """
total = torch.zeros(64, device="npu")
with torch.npu.graph(graph):
    x.add_(y)
    total.add_(x)
    total.add_(y)
side = torch.npu.Stream()
for turn in range(5):
    y.fill_(float(turn))
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        graph.replay()
    torch.npu.current_stream().wait_stream(side)
value, sum_ = 2.0, 0.0
for turn in range(5):
    value += turn
    sum_ += value + turn
is_all(total, sum_)
""",
        capture,
        NPU_DISCRETE_DELAY_US="5000",
    )


def test_a_graph_that_is_gone_gives_its_memory_back(on_discrete):
    on_discrete("""
import gc
def one():
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        a = x + y
        b = a + a
    graph.replay()
    is_all(b, 10)

one()
gc.collect()
before = torch.npu.memory_allocated()
for _ in range(5):
    one()
gc.collect()
assert torch.npu.memory_allocated() == before
""")
