# SPDX-License-Identifier: Apache-2.0
"""torch.npu.graph on a driver with graphs of its own (capture/1): tests/drivers/discrete.

Its memory cannot be read by host code and its streams run on threads of their own, late; expected
values are computed by hand.
"""

import pytest
from faulty import built_driver
from programs import names, program, variables

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


CHAIN = program(__file__, "_chain")


def test_frames_are_launched_as_one_graph(on_discrete):
    on_discrete(
        CHAIN + "assert graphs()[0] == 1 and graphs()[1] >= 3 and graphs()[2] == 0, graphs()"
    )


@pytest.mark.parametrize("capture", ["", "broken"])
def test_without_device_graphs_frames_run_one_by_one(on_discrete, capture):
    """The driver has none, or cannot record."""
    on_discrete(CHAIN + "assert graphs()[1] == 0, graphs()", capture)


@pytest.mark.parametrize("name", names(__file__))
def test_program(on_discrete, name):
    on_discrete(program(__file__, name), **variables(__file__, name))


@pytest.mark.parametrize("capture", ["", "1"])
def test_replays_and_other_work_keep_their_order(on_discrete, capture):
    """Replays between ordinary work on two streams, results read at the end. What a capture puts
    back on its own stream is there for the first of them."""
    on_discrete(
        program(__file__, "_replays_and_other_work_keep_their_order"),
        capture,
        NPU_DISCRETE_DELAY_US="5000",
    )
