# SPDX-License-Identifier: Apache-2.0
"""The core: what is seen, what is left behind, order, threads, phases."""

import os
import subprocess
import sys
import threading

import op_tools
import pytest
import torch
from op_tools import _C
from optools_helpers import ops
from programs import program
from torch import nn
from torch.utils.checkpoint import checkpoint


def test_dispatch_tables_are_as_before(device):
    x = torch.randn(4, 4, device=device)
    before = _C.dump_dispatcher()
    with op_tools.OpObserve():
        assert _C.tap_count() > 1000
        assert _C.dump_dispatcher() != before
        x + x
    assert _C.dump_dispatcher() == before


def test_dispatch_tables_are_as_before_after_an_exception(device):
    torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)  # registers Triton's on cuda
    before = _C.dump_dispatcher()
    tool = op_tools.OpObserve()
    with pytest.raises(RuntimeError), tool:
        torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
    assert _C.dump_dispatcher() == before
    assert [r["raised"] for r in tool.records() if r["op"] == "aten::mm"] == [True]


def test_thread_state_is_as_before(device):
    modes = torch._C._len_torch_function_stack()
    os.environ["OP_OBSERVE_LIST"] = "torch.add"
    try:
        with op_tools.OpObserve():
            assert torch._C._len_torch_function_stack() == modes + 1
    finally:
        del os.environ["OP_OBSERVE_LIST"]
    assert torch._C._len_torch_function_stack() == modes
    assert not torch.autograd._profiler_enabled()


def test_sees_every_kernel_the_profiler_sees_at_the_top(device):
    """Backend kernels of a model's step: the profiler's events, less compositions and children."""
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)
    x = torch.randn(3, 8, device=device)

    def step():
        model(x).pow(2).sum().backward()

    step()
    tool = op_tools.OpObserve()
    with tool:
        step()
    with torch.profiler.profile() as profile:
        step()
    seen = {op.split(".")[0] for op in ops(tool)}
    profiled = {e.name for e in profile.events() if e.name.startswith("aten::")}
    assert seen <= profiled
    for op in ("aten::addmm", "aten::gelu", "aten::gelu_backward", "aten::mm", "aten::sum"):
        assert op in seen
        top = sum(1 for e in profile.events() if e.name == op and not _inside(e, seen))
        assert top == sum(1 for o in ops(tool) if o.split(".")[0] == op), op


def _inside(event, seen):
    parent = event.cpu_parent
    while parent is not None:
        if parent.name in seen:
            return True
        parent = parent.cpu_parent
    return False


def test_phases_and_steps(device):
    model = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _C.set_step(0)
    tool = op_tools.OpObserve()
    with tool:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=device)).sum().backward()
            optimizer.step()
    assert "aten::addmm" in ops(tool, "forward")
    assert "aten::mm" in ops(tool, "backward")
    updates = ops(tool, "optimizer")
    assert any("add_" in op for op in updates), updates
    assert {r["step"] for r in tool.records()} == {0, 1}
    assert _C.step() == 2


def test_a_failing_optimizer_step_leaves_its_phase(device):
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise KeyError("no")

    weight = torch.ones(2, device=device, requires_grad=True)
    tool = op_tools.OpObserve()
    with tool:
        with pytest.raises(KeyError):
            Failing([weight], lr=1.0).step()
        weight * 2
    assert ops(tool, "forward") == ["aten::mul.Tensor"]


def test_sequence_numbers_tie_backward_to_forward(device):
    x = torch.randn(4, 4, device=device, requires_grad=True)
    tool = op_tools.OpObserve()
    tool.call_sites = True
    with tool:
        y = x.exp()
        y.argmax()  # no gradient: takes no number
        z = y.sin()
        z.sum().backward()
    records = tool.records()
    by_number = {r["number"]: r for r in records}
    forward = {r["op"]: r for r in records if r["phase"] == "forward"}
    assert forward["aten::argmax"]["sequence"] == -1
    cos = next(r for r in records if r["op"] == "aten::cos")
    assert cos["phase"] == "backward"
    assert by_number[cos["forward"]]["op"] == "aten::sin"
    assert cos["sequence"] == forward["aten::sin"]["sequence"]
    assert cos["site"] == forward["aten::sin"]["site"] != 0
    file, _, function = _C.site(cos["site"])
    assert file == __file__
    assert function == "test_sequence_numbers_tie_backward_to_forward"


def test_in_place_inputs_are_read_before_the_call(device):
    x = torch.zeros(2, 2, device=device)
    tool = op_tools.OpObserve()
    with tool:
        torch.add(x, 1, out=torch.empty(0, device=device))
    (record,) = [r for r in tool.records() if r["op"] == "aten::add.out"]
    written = [e for e in record["inputs"] if e["written"]]
    assert [e["shape"] for e in written] == [(0,)]  # as it was before
    assert record["outputs"][0]["shape"] == (2, 2)


def test_tools_in_the_order_entered_and_stopped_in_any(device):
    x = torch.ones(3, device=device)
    first, second, third = (op_tools.OpObserve() for _ in range(3))
    first.start()
    x + 1
    second.start()
    x * 2
    third.start()
    x - 3
    first.stop()  # not the last one entered
    x / 4
    third.stop()
    x.exp()
    second.stop()
    x.sin()
    assert ops(first) == ["aten::add.Tensor", "aten::mul.Tensor", "aten::sub.Tensor"]
    assert ops(second) == ["aten::mul.Tensor", "aten::sub.Tensor", "aten::div.Tensor", "aten::exp"]
    assert ops(third) == ["aten::sub.Tensor", "aten::div.Tensor"]


def test_a_tool_can_start_again(device):
    x = torch.ones(3, device=device)
    tool = op_tools.OpObserve()
    for op in ("sin", "cos"):
        with tool:
            getattr(x, op)()
        assert ops(tool) == ["aten::" + op]
    tool.stop()  # twice is harmless
    tool.end()


def test_starting_twice_is_refused(device):
    with op_tools.OpObserve() as tool, pytest.raises(RuntimeError, match="started already"):
        tool.start()


def test_other_threads_are_seen(device):
    x = torch.ones(3, device=device)
    tool = op_tools.OpObserve()
    with tool:
        thread = threading.Thread(target=lambda: x.sin())
        thread.start()
        thread.join()
        x.cos()
    by_op = {r["op"]: r["thread"] for r in tool.records()}
    assert by_op.keys() == {"aten::sin", "aten::cos"}
    assert by_op["aten::sin"] != by_op["aten::cos"]


def test_only_one_thread(device):
    x = torch.ones(3, device=device)
    tool = op_tools.OpObserve()
    tool.thread = _C.thread_number()
    with tool:
        thread = threading.Thread(target=lambda: x.sin())
        thread.start()
        thread.join()
        x.cos()
    assert ops(tool) == ["aten::cos"]


def test_start_and_stop_while_threads_run(device):
    """Tables change under four running threads; every result stays right."""
    stop = threading.Event()
    wrong = []

    def work():
        x = torch.arange(16.0, device=device)
        while not stop.is_set():
            if (x + x).sum().item() != 240.0:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            with op_tools.OpObserve(), op_tools.OpTimeMeasure() as timing:
                timing.report = lambda: None
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_checkpoint_recomputation_and_custom_backward_are_seen(device):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.tanh()

    x = torch.randn(3, device=device, requires_grad=True)
    tool = op_tools.OpObserve()
    with tool:
        y = checkpoint(lambda t: t.sin().sin(), x, use_reentrant=False)
        Double.apply(y).sum().backward()
    assert ops(tool).count("aten::sin") > 2  # the first two, and what backward needs
    assert "aten::tanh" in ops(tool, "backward")


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_second_run_is_of_its_own_modules(device, reentrant):
    """Not of the module whose gradient made a checkpoint run again."""

    class Tanh(nn.Module):
        def forward(self, x):
            return x.tanh()

    net = nn.Sequential(nn.Linear(3, 3), Tanh(), nn.Sigmoid(), nn.Linear(3, 3)).to(device)
    x = torch.randn(2, 3, device=device, requires_grad=True)
    tool = op_tools.OpObserve()
    tool.module_paths = tool.call_sites = True
    with tool:
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
    calls = tool.records()
    modules = {op: [c["module"] for c in calls if c["op"] == op] for op in {c["op"] for c in calls}}
    assert modules["aten::tanh"] == ["1", "1"]
    assert modules["aten::sigmoid"] == ["2", "2"]
    assert modules["aten::tanh_backward"] == ["1"]
    assert modules["aten::sigmoid_backward"] == ["2"]
    sites = {_C.site(c["site"])[2] for c in calls if c["op"].startswith("aten::tanh")}
    assert sites == {"forward"}


def test_torchscript_is_seen(device):
    @torch.jit.script
    def f(x):
        return x.sin() + 1

    x = torch.ones(3, device=device)
    tool = op_tools.OpObserve()
    # On cuda the default fuser makes one kernel of both, which no dispatcher sees.
    with torch.jit.fuser("none"):
        f(x)
        f(x)
        with tool:
            f(x)
    assert "aten::sin" in ops(tool)


@pytest.mark.parametrize("names", [".*", "torch.add"])
def test_compiled_regions_do_not_break(device, monkeypatch, names):
    monkeypatch.setenv("OP_OBSERVE_LIST", names)
    x = torch.randn(4, device=device)
    compiled = torch.compile(lambda t: torch.add(t.sin(), 1), backend="aot_eager")
    with op_tools.OpObserve():
        result = compiled(x)
    torch.testing.assert_close(result, x.sin() + 1)


COLLECTIVE = program(__file__, "_collective")


def test_collectives_are_seen(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", COLLECTIVE, str(tmp_path / "rendezvous"), str(rank)],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.wait(timeout=120) == 0, rank.stderr.read()


def test_data_loader_workers(device):
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    with op_tools.OpObserve():
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
        batches = [batch for (batch,) in loader]
    assert torch.cat(batches).tolist() == list(range(8))


def test_the_result_is_bit_equal(device):
    def run():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8, device=device)).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    plain = run()
    with op_tools.OpObserve(), op_tools.OpOverflowCheck(), op_tools.OpTimeMeasure():
        watched = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


def test_sparse_quantised_and_nested_do_not_break(monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    tool = op_tools.OpObserve()
    with tool, op_tools.OpOverflowCheck():
        sparse = torch.eye(3).to_sparse()
        (sparse @ torch.ones(3, 3)).sum()
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        nested * 2
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8).dequantize()
    assert any(e["opaque"] for r in tool.records() for e in r["inputs"])


def test_a_forked_child_starts_clean(device, monkeypatch):
    monkeypatch.setenv("OP_OBSERVE_LIST", r"torch\..*")
    before = _C.dump_dispatcher()
    tool = op_tools.OpObserve()
    other = op_tools.OpOverflowCheck()
    other.modules = ".*"
    with tool, other:
        child = os.fork()
        if child == 0:
            ok = _C.idle() and _C.dump_dispatcher() == before
            ok = ok and torch._C._len_torch_function_stack() == 0
            ok = ok and not nn.modules.module._global_forward_hooks
            torch.ones(2).sin()
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        torch.ones(3, device=device).sin()
    assert "aten::sin" in ops(tool)


def test_an_operator_defined_and_destroyed(device):
    for turn in range(3):
        library = torch.library.Library("optools_test", "DEF")
        library.define(f"twice{turn}(Tensor x) -> Tensor")
        library.impl(f"twice{turn}", lambda x: x + x, "CompositeExplicitAutograd")
        x = torch.ones(2, device=device)
        tool = op_tools.OpObserve()
        with tool:
            getattr(torch.ops.optools_test, f"twice{turn}")(x)
        assert f"optools_test::twice{turn}" in ops(tool)
        library._destroy()
        with op_tools.OpObserve():
            x + x


def kernel_of_many(x):
    """Calls the operators that have taps with types of their own."""
    made = [
        torch.empty_like(x).copy_(x),
        torch.empty_strided((2, 3), (1, 2), device=x.device).fill_(2.0),
        torch.empty(6, device=x.device).zero_(),
        torch.zeros(2, 2, device=x.device, dtype=torch.int64),
        torch.scalar_tensor(3.0, device=x.device),
        x.clone(memory_format=torch.contiguous_format),
        x.double(),
        x.t().transpose(0, 1).detach().view(-1).unsqueeze(0).squeeze(0).expand(2, x.numel()),
        x.as_strided((2, 2), (1, 2), 1).permute(1, 0).select(0, 1),
        x[:, 1:3],
        x.t().reshape(-1),
        torch.ops.aten.alias(x),
        x.index_select(0, torch.tensor([1], device=x.device)),
        x + 1 - x * 2,
        torch.empty(0, device=x.device).resize_(3).fill_(1.0),
        *x.split(2, 1),
    ]
    with pytest.raises((IndexError, RuntimeError)):
        x.select(0, 9)
    return [tensor.clone() for tensor in made]


@pytest.fixture
def nested():
    library = torch.library.Library("optools_nested", "FRAGMENT")
    library.define("many(Tensor x) -> Tensor[]")
    library.impl("many", kernel_of_many, "CompositeExplicitAutograd")
    yield torch.ops.optools_nested.many
    library._destroy()


def test_calls_inside_a_taken_kernel_go_on_as_they_came(device, nested):
    x = torch.arange(8.0, device=device).view(2, 4)
    plain = nested(x)
    seen = op_tools.OpObserve()
    with seen:
        inside = nested(x)
    assert ops(seen) == ["optools_nested::many"]
    with seen:
        outside = kernel_of_many(x)
    assert {"aten::t", "aten::as_strided", "aten::split.Tensor", "aten::fill_.Scalar"} <= set(
        ops(seen)
    )
    for made in (inside, outside):
        for a, b in zip(plain, made, strict=True):
            assert a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)


def test_module_paths(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())).to(device)
    x = torch.ones(2, 4, device=device)
    tool = op_tools.OpObserve()
    tool.modules = r"1\.0"
    with tool:
        model(x).sum().backward()
    assert {r["module"] for r in tool.records()} == {"1.0"}
    assert ops(tool, "forward").count("aten::addmm") == 1
    assert "aten::mm" in ops(tool, "backward")
    assert not nn.modules.module._global_forward_hooks


def test_records_are_bounded(device, monkeypatch):
    monkeypatch.setenv("OP_OBSERVE_MEMORY_MB", "1")
    x = torch.ones(2, device=device)
    tool = op_tools.OpObserve()
    with tool:
        for _ in range(12000):
            x.sin()
    assert tool.counts()["aten::sin"]["forward"] == 12000
    kept = len(tool.records())
    assert 1000 < kept < 12000
    assert tool._last.dropped + kept == 12000
