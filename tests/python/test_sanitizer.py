# SPDX-License-Identifier: Apache-2.0
"""The stream sanitizer: races it has to find, orders it has to understand, and what a report says."""

import gc
import inspect
import threading

import pytest
import torch
import torch.cuda._sanitizer as csan
import torch_npu  # noqa: F401
from child import run_child
from faulty import built_driver
from torch_npu import _C
from torch_npu.npu import _sanitizer
from torch_npu.npu._sanitizer import NPUSanitizerErrors, npu_sanitizer

pytestmark = pytest.mark.modes


@pytest.fixture(autouse=True)
def sanitizer():
    torch.npu.synchronize()
    npu_sanitizer.enable("raise")
    yield npu_sanitizer
    npu_sanitizer.disable()
    torch.npu.synchronize()


def side_stream():
    return torch.npu.Stream()


def on(stream):
    return torch.npu.stream(stream)


def line_of(text: str) -> str:
    """file:line of the one line of this file that ends with that comment."""
    lines = inspect.getsource(__import__(__name__)).splitlines()
    found = [i + 1 for i, line in enumerate(lines) if line.rstrip().endswith("# " + text)]
    assert len(found) == 1, found
    return f"{__file__}:{found[0]} in "


# ---- races ------------------------------------------------------------------------


def test_report_names_both_accesses_with_their_lines(capfd):
    x = torch.zeros(100, device="npu")  # the allocation
    stream = side_stream()
    x.fill_(1)  # the earlier access
    with pytest.raises(NPUSanitizerErrors) as caught, on(stream):
        x.add(1)  # the later access
    (error,) = caught.value.errors
    assert isinstance(error, _sanitizer.UnsynchronizedAccessError)
    text = str(caught.value)
    later, earlier = text.split("queued earlier")
    assert "aten::add.Tensor reads argument 'self' (float32[100])" in later
    assert f"on stream {stream.stream_id} of npu:0" in later
    assert line_of("the later access") in later
    assert (
        "aten::fill_.Scalar writes argument 'self' (float32[100]) on the default stream" in earlier
    )
    assert line_of("the earlier access") in earlier
    assert "stream.wait_stream(other)" in earlier
    assert error.current_access.stream == stream.npu_stream
    assert error.data_ptr == x.data_ptr()
    assert str(error.allocation_stack_trace[0]).startswith(line_of("the allocation"))
    assert capfd.readouterr().err == ""  # the exception says it


def test_the_exception_is_pytorchs_too():
    x = torch.zeros(10, device="npu")
    with pytest.raises(csan.CUDASanitizerErrors), on(side_stream()):
        x += 1
    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_the_operator_that_races_does_not_run():
    x = torch.zeros(10, device="npu")
    with pytest.raises(NPUSanitizerErrors), on(side_stream()):
        x.fill_(7)
    torch.npu.synchronize()
    assert x.tolist() == [0.0] * 10


@pytest.mark.parametrize(
    "use",
    [
        lambda x, y: x.mul_(2),
        lambda x, y: torch.add(x, 1),
        lambda x, y: torch.mm(x, y),
        lambda x, y: torch.mm(y, y, out=x),
        lambda x, y: x.copy_(y),
        lambda x, y: y.copy_(x.t()),
        lambda x, y: torch._foreach_add_([y, x], 1),
        lambda x, y: torch.cat([y, x]),
        lambda x, y: x[:, 1].sum(),
        lambda x, y: x.nonzero(),
        lambda x, y: x[0, 0].item(),
        lambda x, y: x.cpu(),
        lambda x, y: torch.linalg.solve(y + torch.eye(4, device="npu"), x),
        lambda x, y: torch.fmax(x, y),
        lambda x, y: torch.fft.fft(x),
        lambda x, y: y[x[0].bool()],
        lambda x, y: y.index_put_((x.bool(),), torch.ones((), device="npu")),
        lambda x, y: torch.nn.functional.softmax(x, 0),
        lambda x, y: x.normal_(),
        lambda x, y: torch.ops.npu.npu_dtype_cast(x, torch.float16),
        lambda x, y: x.to_sparse(),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_operators_of_every_rung_are_seen(use):
    stream = side_stream()
    with on(stream):
        y = torch.ones(4, 4, device="npu")
    x = torch.ones(4, 4, device="npu")
    with pytest.raises(NPUSanitizerErrors), on(stream):
        use(x, y)
        y.add_(1)  # what an operator's results raced with is raised by the next one
    npu_sanitizer.disable()
    npu_sanitizer.enable()
    x = torch.ones(4, 4, device="npu")
    stream.wait_stream(torch.npu.current_stream())
    with on(stream):
        use(x, torch.ones(4, 4, device="npu"))


def test_a_write_after_reads_races_with_each():
    x = torch.zeros(10, device="npu")
    first, second = side_stream(), side_stream()
    for stream in (first, second):
        stream.wait_stream(torch.npu.current_stream())
        with on(stream):
            x + 1
    with pytest.raises(NPUSanitizerErrors) as caught:
        x.zero_()
    assert {e.previous_access.stream for e in caught.value.errors} == {
        first.npu_stream, second.npu_stream,
    }  # fmt: skip


def test_bytes_are_compared_not_storages():
    x = torch.zeros(64, 8, device="npu")
    stream = side_stream()
    stream.wait_stream(torch.npu.current_stream())
    x[:, :4].fill_(1)
    x[32:].t()
    with on(stream):
        x[:, 4:].fill_(2)  # rows alternate: the spans meet, no byte does
        x.view(-1)[4::8].add_(1)
    with pytest.raises(NPUSanitizerErrors), on(stream):
        x[5, 3].add_(1)


def test_memory_that_is_known_under_another_storage():
    x = torch.zeros(64, device="npu")
    alias = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x[16:32]))
    assert alias.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    stream = side_stream()
    stream.wait_stream(torch.npu.current_stream())
    with on(stream):
        x[:16].add_(1)
        alias.add_(1)
    with pytest.raises(NPUSanitizerErrors):
        x.mul_(2)


def test_memory_handed_out_again_without_record_stream():
    stream = side_stream()
    x = torch.zeros(1000, device="npu")
    stream.wait_stream(torch.npu.current_stream())
    with on(stream):
        x.sum()  # the use that may be late
    address = x.data_ptr()
    del x
    with pytest.raises(NPUSanitizerErrors) as caught:
        y = torch.ones(1000, device="npu")
        assert y.data_ptr() == address
        y.add_(1)
    assert "tensor.record_stream(stream)" in str(caught.value)
    assert line_of("the use that may be late") in str(caught.value)


def test_races_of_another_thread():
    x = torch.zeros(10, device="npu")
    stream = side_stream()
    caught = []

    def work():
        try:
            with on(stream):
                x.add(1)
        except NPUSanitizerErrors as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1 and "in work" in str(caught[0])


def test_backward_names_the_line_of_the_forward_call():
    stream = side_stream()
    w = torch.ones(8, device="npu", requires_grad=True)
    stream.wait_stream(torch.npu.current_stream())
    y = w * 3
    z = y.exp()  # the forward call
    loss = z.sum()
    with pytest.raises(NPUSanitizerErrors) as caught:
        with on(stream), torch.no_grad():
            stream.wait_stream(torch.npu.default_stream())
            z.data.mul_(1)  # behind autograd's back
        loss.backward()
    text = str(caught.value)
    assert "in the backward pass of:" in text
    assert line_of("the forward call") in text


# ---- host memory ------------------------------------------------------------------


def test_host_reads_what_a_copy_may_still_write():
    x = torch.ones(100, device="npu")
    host = torch.empty(100, pin_memory=True)
    host.copy_(x, non_blocking=True)
    with pytest.raises(NPUSanitizerErrors) as caught:
        host.sum()
        x + 1
    assert "aten::sum reads argument 'self' (float32[100]) on the host" in str(caught.value)
    assert "event.synchronize()" in str(caught.value)


def test_host_writes_what_a_copy_may_still_read():
    host = torch.ones(100).pin_memory()
    x = host.to("npu", non_blocking=True)
    assert host.sum().item() == 100  # both read
    with pytest.raises(NPUSanitizerErrors):
        host.fill_(2)
        x + 1


@pytest.mark.parametrize(
    "wait",
    [
        lambda: torch.npu.synchronize(),
        lambda: torch.npu.current_stream().synchronize(),
        lambda: torch.npu.current_stream().record_event().synchronize(),
    ],
)
def test_host_memory_after_the_copy(wait):
    x = torch.ones(100, device="npu")
    host = torch.empty(100, pin_memory=True)
    host.copy_(x, non_blocking=True)
    wait()
    host.add_(1)
    assert host.sum().item() == 200
    pageable = torch.empty(100)
    pageable.copy_(x, non_blocking=True)
    pageable.add_(1)


def test_pinned_memory_is_handed_out_again():
    for _ in range(20):
        host = torch.ones(1 << 12).pin_memory()
        host.to("npu", non_blocking=True)
        del host


# ---- order ------------------------------------------------------------------------

ORDERS = {
    "wait_stream": lambda before, after: after.wait_stream(before),
    "wait_event": lambda before, after: after.wait_event(before.record_event()),
    "event.wait": lambda before, after: before.record_event().wait(after),
    "generic stream": lambda before, after: torch.Stream.wait_stream(after, before),
    "generic event": lambda before, after: after.wait_event(
        before.record_event(torch.Event("npu"))
    ),
    "synchronize": lambda before, after: torch.npu.synchronize(),
    "accelerator": lambda before, after: torch.accelerator.synchronize(),
    "stream.synchronize": lambda before, after: before.synchronize(),
    "event.synchronize": lambda before, after: before.record_event().synchronize(),
    "query": lambda before, after: wait_by_asking(before.record_event()),
    "through a third": lambda before, after: through(before, after, torch.npu.Stream()),
}


def wait_by_asking(event):
    while not event.query():
        pass


def through(before, after, third):
    third.wait_stream(before)
    after.wait_stream(third)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_orders_that_are_understood(order):
    stream = side_stream()
    main = torch.npu.current_stream()
    x = torch.zeros(10, device="npu")
    for _ in range(3):
        order(main, stream)
        with on(stream):
            x.add_(1)
        order(stream, main)
        x.mul_(2)
    assert x.tolist() == [14.0] * 10


def test_an_event_covers_what_came_before_it_only():
    x = torch.zeros(10, device="npu")
    y = torch.zeros(10, device="npu")
    event = torch.npu.current_stream().record_event()
    y.add_(1)
    stream = side_stream()
    stream.wait_event(event)
    with on(stream):
        x + 1
        with pytest.raises(NPUSanitizerErrors):
            y + 1


def test_record_stream_makes_reuse_safe():
    stream = side_stream()
    for _ in range(4):
        x = torch.zeros(1000, device="npu")
        x.record_stream(stream)
        stream.wait_stream(torch.npu.current_stream())
        with on(stream):
            x.sum()
        del x
        torch.ones(1000, device="npu").add_(1)


def test_memory_that_went_back_to_the_driver_is_new():
    stream = side_stream()
    with on(stream):
        x = torch.zeros(1 << 22, device="npu")
        x.add_(1)
    del x
    torch.npu.empty_cache()
    torch.zeros(1 << 22, device="npu").add_(1)


# ---- programs that are right ------------------------------------------------------


def small_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    ).npu()


def test_overlapped_gradient_reduction():
    """As DDP does it: gradients are flattened and reduced on a stream of their own during backward."""
    model, reducing = small_model(), side_stream()
    optimizer = torch.optim.AdamW(model.parameters(), fused=False)

    def reduce(parameter):
        ready = torch.npu.current_stream().record_event()
        reducing.wait_event(ready)
        with on(reducing):
            bucket = parameter.grad.flatten().clone()
            bucket.div_(2)
            parameter.grad.copy_(bucket.view_as(parameter.grad))
            parameter.grad.record_stream(reducing)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)
    for _ in range(4):
        x = torch.randn(8, 16).pin_memory().npu(non_blocking=True)
        loss = model(x).square().mean()
        loss.backward()
        torch.npu.current_stream().wait_stream(reducing)
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() > 0


def test_prefetching_loader():
    """Batches go up on a stream of their own, pinned by DataLoader's thread, one ahead."""
    data = torch.utils.data.TensorDataset(
        torch.arange(64 * 16.0).view(64, 16), torch.arange(64) % 4
    )
    loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True)
    model, copying, losses = small_model(), side_stream(), []
    copying.wait_stream(torch.npu.current_stream())

    def batches():
        ahead = None
        for batch in loader:
            with on(copying):
                moved = [t.npu(non_blocking=True) for t in batch]
            torch.npu.current_stream().wait_stream(copying) if ahead is None else None
            if ahead is not None:
                yield ahead
            ahead = moved
            torch.npu.current_stream().wait_stream(copying)
            for t in moved:
                t.record_stream(torch.npu.current_stream())
        yield ahead

    for x, y in batches():
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.detach())
    assert len(torch.stack(losses).tolist()) == 8


def test_forward_and_backward_on_a_side_stream():
    model, stream = small_model(), side_stream()
    stream.wait_stream(torch.npu.current_stream())
    with on(stream):
        x = torch.randn(8, 16, device="npu")
        loss = model(x).sum()
    loss.backward()  # each node runs on the stream of its forward; the caller's waits at the end
    for parameter in model.parameters():
        parameter.grad.add_(1)


def test_captured_graph():
    x = torch.ones(8, device="npu")
    graph = torch.npu.NPUGraph()
    warm = side_stream()
    warm.wait_stream(torch.npu.current_stream())
    with on(warm):
        for _ in range(2):
            (x * 2).exp()
    torch.npu.current_stream().wait_stream(warm)
    with torch.npu.graph(graph):
        y = (x * 2).exp()
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        assert torch.allclose(y.cpu(), torch.full((8,), value * 2).exp())
    x.fill_(3)
    with pytest.raises(NPUSanitizerErrors), on(side_stream()):
        graph.replay()


@pytest.mark.parametrize("backend", ["npu", "inductor", "aot_eager"])
def test_compiled_model(backend):
    torch._dynamo.reset()
    model = small_model().eval()
    compiled = torch.compile(model, backend=backend)
    stream = side_stream()
    x = torch.randn(8, 16, device="npu")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        stream.wait_stream(torch.npu.current_stream())
        with on(stream):
            y = compiled(x)
        torch.npu.current_stream().wait_stream(stream)
        y.add(1)
        x.mul_(2)
        with pytest.raises(NPUSanitizerErrors), on(stream):
            compiled(x)


def test_tracing_with_symbolic_sizes(capfd):
    """Tensors that are only traced have no sizes to compute with."""
    compiled = torch.compile(lambda a, b: (a + b).relu().sum(-1), backend="npu", dynamic=True)
    with torch.no_grad():
        for n in (5, 7):
            x = torch.full((n, n), 2.0, device="npu")
            assert compiled(x, x).tolist() == [4.0 * n] * n
    assert "Exception in RecordFunction callback" not in capfd.readouterr().err


def test_two_devices(two_devices):
    x = torch.ones(100, device="npu:0")
    y = x.to("npu:1")
    y.add_(1)
    x.mul_(2)
    y.copy_(x)
    stream = torch.npu.Stream("npu:1")
    with pytest.raises(NPUSanitizerErrors), on(stream):
        y.add_(1)


# ---- switches ---------------------------------------------------------------------

RACE = """
    import torch, torch_npu
    x = torch.zeros(10, device="npu")
    with torch.npu.stream(torch.npu.Stream()):
        x.add_(1)
    print("went on")
"""


def test_the_variable_switches_it_on(run_python):
    npu_sanitizer.disable()
    done = run_python(RACE, check=False, TORCH_NPU_SANITIZER="1")
    assert done.returncode == 1 and "went on" not in done.stdout
    assert "NPUSanitizerErrors: the NPU sanitizer found 1 data race" in done.stderr
    done = run_python(RACE, TORCH_NPU_SANITIZER="warn")
    assert done.stdout == "went on\n"
    assert done.stderr.count("NPU sanitizer: a data race") == 1
    for value in ("0", ""):
        done = run_python(RACE, TORCH_NPU_SANITIZER=value)
        assert "sanitizer" not in done.stderr


@pytest.mark.parametrize(
    "variables",
    [{"NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "300"}, {"NPU_DRIVER": "discrete"}],
    ids=["async", "discrete"],
)
def test_other_drivers_say_the_same(run_python, variables):
    npu_sanitizer.disable()
    if "NPU_DRIVER" in variables:
        variables = {"NPU_DRIVER": built_driver(variables["NPU_DRIVER"])}
    done = run_python(RACE, TORCH_NPU_SANITIZER="warn", **variables)
    assert done.stdout == "went on\n"
    assert "aten::add_.Tensor writes argument 'self'" in done.stderr
    assert "aten::zeros writes the result" in done.stderr


def test_repeated_races_are_printed_once(capfd):
    npu_sanitizer.disable()
    npu_sanitizer.enable("warn")
    stream = side_stream()
    for _ in range(3):
        x = torch.zeros(10, device="npu")
        with on(stream):
            x.add(1)
        torch.npu.synchronize()
    assert capfd.readouterr().err.count("a data race") == 1
    assert len(npu_sanitizer.event_handler.errors) == 3


def test_off_means_nothing_is_watched():
    npu_sanitizer.disable()
    assert not _C._sanitizer_is_on()
    x = torch.zeros(10, device="npu")
    with on(side_stream()):
        x.add_(1)
    torch.npu.synchronize()


def test_bad_action_is_refused():
    npu_sanitizer.disable()
    with pytest.raises(ValueError, match=r"'loud' is no action\. Allowed: 'raise', 'warn'"):
        npu_sanitizer.enable("loud")
    assert not npu_sanitizer.enabled


# ---- what torch_npu's own sanitizer offers ----------------------------------------


def test_missing_record_stream_is_listed():
    x = torch.zeros(100, device="npu")
    view = x[10:50]
    first, second = side_stream(), side_stream()
    for stream in (first, second):
        stream.wait_stream(torch.npu.current_stream())
        with on(stream):
            view + 1
    handler = npu_sanitizer.event_handler
    assert {w.usage_stream for w in handler.flush_record_stream_warnings()} == {
        int(first.npu_stream), int(second.npu_stream),
    }  # fmt: skip
    x.record_stream(first)
    (left,) = handler.flush_record_stream_warnings()
    assert left.usage_stream == second.npu_stream
    torch.npu.current_stream().wait_stream(second)
    assert handler.flush_record_stream_warnings() == []
    with on(second):
        view + 1
    assert handler.record_stream_errors == []
    del x, view
    gc.collect()
    (error,) = handler.record_stream_errors
    assert error.freed and "tensor.record_stream(stream)" in str(error)


def test_leaving_its_dispatch_switches_it_off():
    npu_sanitizer.dispatch.__exit__(None, None, None)
    npu_sanitizer.dispatch = None
    npu_sanitizer.event_handler = None
    npu_sanitizer.enabled = False
    assert not _C._sanitizer_is_on()
    torch.npu._sanitizer.enable_npu_sanitizer()
    assert npu_sanitizer.enabled and _C._sanitizer_is_on()


def test_a_child_process_finds_races_of_its_own():
    npu_sanitizer.disable()
    assert "went on" in run_child(RACE)
