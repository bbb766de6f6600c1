# SPDX-License-Identifier: Apache-2.0
"""torch.profiler with npu devices: lanes, links, columns, ranges, schedules."""

import os

import pytest
import torch
import torch_npu
from programs import program
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from traces import CLOCKS_US, Trace, overlaps

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    ).to("npu")


def step(net, x):
    loss = net(x).square().mean()
    loss.backward()
    return loss


@pytest.fixture
def trace_of(tmp_path):
    """The trace of a finished profile, as its file has it."""

    def read(prof):
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
        return Trace(tmp_path / "trace.json")

    return read


def test_every_kernel_is_linked_to_the_operator_that_launched_it(trace_of):
    net, x = model(), torch.randn(32, 64, device="npu")
    step(net, x)
    with profile(activities=BOTH) as prof:
        step(net, x)
    trace = trace_of(prof)
    lanes = trace.check()
    assert set(lanes) == {(0, 0)}
    assert overlaps(lanes[0, 0]) == []  # one stream, one thing at a time
    linked = [w for w in trace.work if w["args"].get("External id") in trace.ops]
    assert len(linked) == len(trace.work)
    launchers = {trace.ops[w["args"]["External id"]]["name"] for w in linked}
    assert {"aten::addmm", "aten::native_layer_norm"} <= launchers
    assert {"aten::mm", "aten::native_layer_norm_backward"} <= launchers  # backward too


def test_lanes_have_names(trace_of):
    with profile(activities=BOTH) as prof:
        torch.ones(8, device="npu").add_(1)
    trace = trace_of(prof)
    # As torch.npu, `opennpu doctor` and `opennpu top` name it.
    assert trace.names("process_name")[0] == f"NPU 0: {torch.npu.get_device_name(0)}"
    assert trace.names("thread_name")[0, 0] == "stream 0 (default)"


def test_a_kernel_takes_the_time_it_takes(trace_of):
    """The kernel is nearly all of its operator here: it runs on the calling thread."""
    a = torch.randn(512, 512, device="npu")
    a @ a
    with profile(activities=BOTH) as prof:
        for _ in range(10):  # a busy machine may take the thread off the core in some
            a @ a
    trace = trace_of(prof)
    shares = []
    for kernel in trace.of("kernel"):
        op = trace.ops[kernel["args"]["External id"]]
        assert op["name"] == "aten::mm"
        assert kernel["dur"] <= op["dur"] + 2 * CLOCKS_US
        shares.append(kernel["dur"] / op["dur"])
    assert len(shares) == 10 and max(shares) > 0.5


def test_columns_of_key_averages():
    net, x = model(), torch.randn(32, 64, device="npu")
    with profile(activities=BOTH, record_shapes=True) as prof:
        step(net, x)
    rows = {(r.key, r.device_type.name): r for r in prof.key_averages()}
    op = rows["aten::addmm", "CPU"]
    assert op.self_device_time_total > 0
    assert op.device_time_total >= op.self_device_time_total
    kernels = [r for (key, where), r in rows.items() if where in {"PrivateUse1", "NPU"}]
    assert sum(k.self_device_time_total for k in kernels) == pytest.approx(
        sum(r.self_device_time_total for r in rows.values() if r not in kernels), rel=1e-3
    )
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="self_device_time_total")
    assert "Self NPU" in table
    assert "[32, 64]" in table


def test_copies_show(trace_of):
    with profile(activities=BOTH) as prof:
        x = torch.arange(1000.0).to("npu")
        y = torch.empty_like(x).copy_(x)
        y.cpu()
        torch.zeros(1000, device="npu").zero_()
    copies = {w["name"]: w for w in trace_of(prof).of("gpu_memcpy", "gpu_memset")}
    assert copies["Memcpy HtoD"]["args"]["bytes"] == 4000
    assert copies["Memcpy DtoH"]["args"]["bytes"] == 4000


def test_each_stream_has_a_lane(trace_of):
    x = torch.ones(100, device="npu")
    stream = torch.npu.Stream()
    with profile(activities=BOTH) as prof:
        x.add_(1)
        with torch.npu.stream(stream):
            x.mul_(2)
        torch.npu.synchronize()
    trace = trace_of(prof)
    lanes = trace.check()
    assert set(lanes) == {(0, 0), (0, stream.stream_id)}
    assert trace.names("thread_name")[0, stream.stream_id] == f"stream {stream.stream_id}"
    assert len(lanes[0, stream.stream_id]) == 1


def test_ranges_of_the_user_show_on_the_device(trace_of):
    x = torch.ones(100, device="npu")
    with profile(activities=BOTH) as prof:
        with record_function("outer"):
            x.add_(1)
            with torch.npu.mstx.mstx_range("inner"):
                x.mul_(2)
        number = torch.npu.mstx.range_start("by number")
        x.sub_(1)
        torch.npu.mstx.range_end(number)
        with torch.npu.nvtx.range("step {}", 3):
            x.sub_(1)
    trace = trace_of(prof)
    on_host = {e["name"] for e in trace.of("user_annotation")}
    assert {"outer", "inner", "by number", "step 3"} <= on_host
    on_device = {e["name"]: e for e in trace.of("gpu_user_annotation")}
    assert {"inner", "by number", "step 3"} <= set(on_device)
    inner = on_device["inner"]
    (work,) = [w for w in trace.work if "mul" in w["args"]["operator"]]
    assert inner["ts"] == pytest.approx(work["ts"], abs=0.01)
    assert inner["dur"] == pytest.approx(work["dur"], abs=0.01)


def test_memory_events():
    with profile(activities=BOTH, profile_memory=True) as prof:
        kept = torch.empty(1 << 18, device="npu")
    rows = {r.key: r for r in prof.key_averages()}
    assert rows["aten::empty"].self_device_memory_usage == 1 << 20
    assert kept.numel() == 1 << 18


def test_stacks_and_modules(trace_of):
    net, x = model(), torch.randn(4, 64, device="npu")
    with profile(activities=BOTH, with_stack=True, with_modules=True) as prof:
        net(x)
    names = {e["name"] for e in trace_of(prof).of("python_function")}
    assert any("nn.Module: Linear" in name for name in names)
    assert any("test_lanes.py" in name and "test_stacks_and_modules" in name for name in names)


def test_schedule_and_handler(tmp_path):
    net, x = model(), torch.randn(32, 64, device="npu")
    ready = []

    def handler(prof):
        ready.append(prof.step_num)
        torch.profiler.tensorboard_trace_handler(str(tmp_path))(prof)

    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=handler,
    ) as prof:
        for _ in range(8):
            step(net, x)
            prof.step()
    assert ready == [4, 8]
    files = sorted(tmp_path.glob("*.pt.trace.json"))
    assert len(files) == 2
    counts = []
    for file in files:
        trace = Trace(file)
        trace.check()
        steps = [e for e in trace.of("user_annotation") if e["name"].startswith("ProfilerStep#")]
        assert len(steps) == 2
        counts.append(len(trace.of("kernel")))
    assert counts[0] == counts[1]  # the same two steps, nothing of the others


def test_work_of_other_threads_shows(trace_of):
    import threading

    x = torch.ones(1000, device="npu")

    def work():
        for _ in range(20):
            x + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    with profile(activities=BOTH) as prof:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len([w for w in trace_of(prof).of("kernel") if "add" in w["name"]]) == 80


def test_only_the_device():
    x = torch.ones(10, device="npu")
    with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
        x + 1
    kernels = [e for e in prof.events() if e.device_type.name in {"PrivateUse1", "NPU"}]
    assert len(kernels) == 1


def test_only_the_cpu_watches_nothing():
    x = torch.ones(10, device="npu")
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x + 1
        assert torch_npu._C._watched_for() & 1 == 0
    assert not [e for e in prof.events() if e.device_type.name in {"PrivateUse1", "NPU"}]


def test_off_means_that_no_code_of_the_profiler_runs():
    """Without a listener the driver's own functions are called (src/driver/launch_watch_test.cpp)."""
    assert torch_npu._C._watched_for() & 1 == 0
    with profile(activities=BOTH):
        assert torch_npu._C._watched_for() & 1 == 1
    assert torch_npu._C._watched_for() & 1 == 0


def test_results_are_the_same(trace_of):
    net, x = model(), torch.randn(32, 64, device="npu")
    plain = step(net, x).item()
    grads = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with profile(activities=BOTH):
        watched = step(net, x).item()
    assert plain == watched
    assert all(torch.equal(g, p.grad) for g, p in zip(grads, net.parameters(), strict=True))


def test_graph_replays_show(trace_of):
    import torchair

    backend = torchair.get_npu_backend()
    compiled = torch.compile(lambda a: (a + 1).relu() * 2, backend=backend, dynamic=False)
    x = torch.randn(100, device="npu")
    for _ in range(3):
        compiled(x)
    with profile(activities=BOTH) as prof:
        compiled(x)
    assert trace_of(prof).check()


@pytest.mark.skipif(os.environ.get("NPU_HOST_DEVICES", "1") != "1", reason="makes its own")
def test_two_devices(run_code):
    run_code(
        program(__file__, "_two_devices"),
        NPU_HOST_DEVICES="2",
    )


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_collectives_have_a_lane(run_code, asynchronous):
    run_code(
        program(__file__, "_collectives_have_a_lane"),
        NPU_HOST_ASYNC=asynchronous,
    )


def test_cuda_programs(run_code):
    """transfer_to_npu: ProfilerActivity.CUDA means the npu's lanes."""
    run_code(program(__file__, "_cuda_programs"))
