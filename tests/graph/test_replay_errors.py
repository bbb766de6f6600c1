# SPDX-License-Identifier: Apache-2.0
"""A driver that fails in the middle of a replay: the error names the operator, and the next call works.

Graphs are traced by make_fx, on the driver that fails on demand (tests/drivers/faulty_driver.cpp)
over the host driver with every kernel of its own, so that they are frames alone.
"""

import pytest
from faulty import faulty_environment
from programs import names, program, variables

HEAD = program(__file__, "_head")


@pytest.fixture
def on_faulty(run_python):
    variables = {**faulty_environment(), "NPU_HOST_KERNELS": "all", "NPU_PROFILE": "none"}
    variables["NPU_GRAPH_OFF"] = "chains"  # frames fail one by one
    return lambda code: run_python(HEAD + code, **variables)


@pytest.mark.parametrize("nth, name", [(1, "aten::sin"), (2, "aten::mul"), (3, "aten::exp")])
def test_a_frame_that_fails(on_faulty, nth, name):
    """What came before it is done, as in eager mode; nothing after it."""
    on_faulty(f"""
held = state.clone()
fails("op.run:{nth}", lambda: run([x, held]), {name!r}, "as asked")
assert torch.equal(held, state * 0.5 if {nth} > 2 else state)
works()
assert counts()["recorded"] == 1 and counts()["replayed"] == 5, counts()
""")


def test_a_frame_that_is_declined_runs_as_the_program_says(on_faulty):
    on_faulty("""
assert faulty.npu_faulty_arm(b"op.run:3:unsupported") == 0
works(1)
assert faulty.npu_faulty_fired() == 1 and counts()["left"] == 1, counts()
works()
assert counts()["left"] == 1 and counts()["recorded"] == 1, counts()
""")


@pytest.mark.parametrize("name", names(__file__))
def test_program(on_faulty, name):
    on_faulty(program(__file__, name), **variables(__file__, name))


def test_an_error_that_comes_late(on_faulty):
    """A stream tells of it when it is waited for; the graph is of use afterwards."""
    on_faulty("""
def late():
    run([x, state.clone()])
    torch.npu.synchronize()
fails("device.synchronize:1:async", late, "as asked")
works()
""")


def test_an_error_while_recording_keeps_nothing(on_faulty):
    on_faulty("""
other = torch.randn(3, 5).npu(), torch.randn(3, 5).npu()
fails("op.run:2", lambda: run([other[0], other[1].clone()]), "as asked")
assert counts()["recorded"] == 1, counts()
(got,) = run([other[0], other[1].clone()])
judge(got, *other)
assert counts()["recorded"] == 2, counts()
works()
""")
