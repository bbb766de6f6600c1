# SPDX-License-Identifier: Apache-2.0
"""A driver that fails in the middle of a replay: the error names the operator, and the next call works.

Graphs are traced by make_fx, on the driver that fails on demand (tests/drivers/faulty_driver.cpp)
over the host driver with every kernel of its own, so that they are frames alone.
"""

import pytest
from faulty import faulty_environment

HEAD = """
import ctypes, os
import torch, torch_npu, torchair
from torch.fx.experimental.proxy_tensor import make_fx

faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_fired.restype = ctypes.c_int64

def fails(what, call, *words):
    before = faulty.npu_faulty_fired()
    assert faulty.npu_faulty_arm(what.encode()) == 0, what
    try:
        call()
        torch.npu.synchronize()
    except RuntimeError as error:
        for word in words:
            assert word in str(error), error
    else:
        raise SystemExit("no error")
    assert faulty.npu_faulty_fired() == before + 1
    faulty.npu_faulty_arm(b"")

def body(x, state):
    y = torch.sin(x)
    state.mul_(0.5)
    return torch.exp(y) + state

def judge(got, x, state):
    wanted = torch.exp(torch.sin(x.double().cpu())) + state.double().cpu() * 0.5
    torch.testing.assert_close(got.double().cpu(), wanted, rtol=1e-6, atol=1e-6)

x, state = (torch.randn(64, 8).npu() for _ in range(2))
run = torchair.get_compiler()(make_fx(body)(x, state.clone()), [x, state])
counts = run.replayer.counts

def works(times=3):
    for _ in range(times):
        (got,) = run([x, state.clone()])
        judge(got, x, state)
    assert torch.ones(3, device="npu").cumsum(0).tolist() == [1, 2, 3]

works()
assert counts()["replayed"] == 2 and counts()["islands"] == 0 and counts()["frames"] == 4, counts()
"""


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


def test_no_memory_for_a_replay(on_faulty):
    """16 MiB each, so that none fits into what another left of a segment of the pool."""
    on_faulty("""
big = torch.randn(1 << 22).npu(), torch.randn(1 << 22).npu()
run([big[0], big[1].clone()])
torch.npu.empty_cache()
written = big[1].clone()
torch.npu.set_per_process_memory_fraction(1e-9)
try:
    run([big[0], written])
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error), error
else:
    raise SystemExit("no error")
torch.npu.set_per_process_memory_fraction(1.0)
(got,) = run([big[0], big[1].clone()])
judge(got, *big)
works()
""")


def test_a_device_graph_that_fails(on_faulty):
    on_faulty("""
graph = torch.npu.NPUGraph()
y = torch.empty_like(x)
with torch.npu.graph(graph):
    torch.exp(torch.sin(x), out=y)
graph.replay()
fails("op.run:2", graph.replay, "aten::exp", "as asked")
y.zero_()
graph.replay()
judge(y + state * 0.5, x, state)
works()
""")


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
