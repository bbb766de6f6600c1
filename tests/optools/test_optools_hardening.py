# SPDX-License-Identifier: Apache-2.0
"""The core under strain: memory, rules, broken tools, everyone who can call an operator."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import subprocess
import sys
import threading

import op_tools
import pytest
import torch
from op_tools import _C, captures
from optools_helpers import TOOLS, acted, ops
from torch import nn


class MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks used free keepcost".split()
    ]


def allocated() -> int:
    """Bytes malloc has given out."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = MallInfo
    gc.collect()
    info = ask()
    return info.used + info.hblkhd


@pytest.mark.parametrize("name", TOOLS)
def test_repeated_starts_keep_no_memory(device, name, capsys):
    x = torch.ones(4, device=device)

    def turns(count):
        for _ in range(count):
            with getattr(op_tools, name)():
                x.sin()
        capsys.readouterr()

    turns(3)
    before = allocated()
    turns(20)
    assert allocated() - before < 64 * 1024  # once it was 220 KB a turn


# ---- rules ---------------------------------------------------------------------
def test_only_one_phase(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    seen = {}
    for phase in ("forward", "backward", "optimizer"):
        tool = op_tools.OpObserve()
        tool.phases = (phase,)
        with tool:
            weight.sin().sum().backward()
            optimizer.step()
        assert {r["phase"] for r in tool.records()} == {phase}
        seen[phase] = ops(tool)
    assert "aten::sin" in seen["forward"] and "aten::cos" in seen["backward"]
    assert not any("sin" in op or "cos" in op for op in seen["optimizer"])


def test_only_some_steps(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    _C.set_step(0)
    tool = op_tools.OpObserve()
    tool.steps = (1, 2)
    with tool:
        for _ in range(5):
            weight.sin()
            optimizer.step()
    assert [r["step"] for r in tool.records() if r["op"] == "aten::sin"] == [1, 2]


def test_only_one_device(accelerator, monkeypatch):
    here, there = torch.ones(2), torch.ones(2, device=accelerator)
    seen = {}
    for device in ("cpu", accelerator, f"cpu,{accelerator}", "all"):
        monkeypatch.setenv("OP_TOOLS_DEVICE", device)
        tool = op_tools.OpObserve()
        with tool:
            here.sin()
            there.cos()
        seen[device] = ops(tool)
    assert seen["cpu"] == ["aten::sin"]
    assert seen[accelerator] == ["aten::cos"]
    assert seen["all"] == seen[f"cpu,{accelerator}"] == ["aten::sin", "aten::cos"]


def test_rules_together(device, monkeypatch):
    """Operator, phase, module and thread at once; each of them alone would take more."""
    monkeypatch.setenv("OP_OBSERVE_LIST", "aten::(addmm|mm|relu)")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to(device)
    x = torch.ones(2, 4, device=device)
    tool = op_tools.OpObserve()
    tool.modules, tool.phases, tool.thread = "2", ("forward",), _C.thread_number()
    with tool:
        thread = threading.Thread(target=lambda: model(x).sum().backward())
        thread.start()
        thread.join()
        model(x).sum().backward()
    assert ops(tool) == ["aten::addmm"]


def test_generated_operators_are_seen_by_their_parts(device, monkeypatch):
    x, out = torch.ones(2, device=device), torch.empty(2, device=device)
    made = torch.ops.aten.zero.out
    assert torch.Tag.generated in made.tags
    tool = op_tools.OpObserve()
    with tool:
        made(x, out=out)
    assert "aten::zero.out" not in ops(tool) and ops(tool)
    monkeypatch.setenv("OP_OBSERVE_LIST", "aten::zero.out")
    with tool:
        made(x, out=out)
    assert ops(tool) == ["aten::zero.out"]


# ---- exceptions ----------------------------------------------------------------
@pytest.fixture(scope="module")
def failing_new(tmp_path_factory):
    """failing_new.cpp as a library to be preloaded."""
    made = tmp_path_factory.mktemp("preloaded") / "failing_new.so"
    source = os.path.join(os.path.dirname(__file__), "failing_new.cpp")
    command = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(made), source]
    subprocess.run(command, check=True)
    return str(made)


def test_a_broken_tool_says_so_once_and_user_code_goes_on(device, failing_new):
    """Memory runs out at each of a tool's first allocations. Where it does so for the list a call's
    arguments are put on, outside the tools, that call fails as it would without them."""
    script = os.path.join(os.path.dirname(__file__), "break_tools.py")
    done = subprocess.run(
        [sys.executable, script, device, *TOOLS],
        env={**os.environ, "LD_PRELOAD": failing_new},
        capture_output=True,
        text=True,
    )
    *lines, last = done.stdout.splitlines() or [""]
    assert last == "done", done.stderr
    broken = dict.fromkeys(TOOLS, 0)
    for name, _, failure, calls, said in (line.split(";") for line in lines):
        if failure:
            broken[name] += 1
            assert (failure, said) == ("std::bad_alloc", "the same")
            assert int(calls) == 4  # the other tool goes on
        else:
            assert said in ("std::bad_alloc", "the same")
    for name, times in broken.items():
        assert times >= 3, name
        words = f"op_tools: {name} stopped watching after an internal error: std::bad_alloc"
        assert done.stderr.count(words) == times


def test_exceptions_of_the_user_leave_nothing_behind(device):
    """Raised in forward, in a hook, in a custom backward and in another thread."""

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("backward")

    x = torch.ones(2, device=device, requires_grad=True)
    model = nn.Sequential(nn.Linear(2, 2)).to(device)
    model[0].register_forward_hook(lambda *_: 1 / 0)

    def fail():
        with pytest.raises(RuntimeError):
            x.view(7)

    before = _C.dump_dispatcher()
    tool = op_tools.OpObserve()
    tool.modules = ".*"
    with tool, op_tools.OpTimeMeasure(), op_tools.OpFallback():
        with pytest.raises(RuntimeError):
            x @ torch.ones(3, 3, device=device)
        with pytest.raises(ZeroDivisionError):
            model(x)
        with pytest.raises(KeyError):
            Bad.apply(x).sum().backward()
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        y = x.sin()
    assert y.tolist() == x.cpu().sin().tolist()  # OpFallback is the cpu's
    assert {r["module"] for r in tool.records()} == {"0"}  # and sin is in none
    assert _C.dump_dispatcher() == before


# ---- callers -------------------------------------------------------------------
def test_compiled_regions_are_seen(device):
    compiled = torch.compile(lambda t: (t.sin() + 1).exp(), backend="aot_eager")
    x = torch.randn(4, device=device)
    before = _C.dump_dispatcher()
    tool = op_tools.OpObserve()
    with tool:
        result = compiled(x)  # compiles under the tool
        again = compiled(x)
    assert ops(tool).count("aten::sin") >= 2
    assert ops(tool).count("aten::exp") >= 2
    assert torch.equal(result, again)
    assert torch.equal(compiled(x), result)  # and goes on without it
    assert _C.dump_dispatcher() == before


@pytest.mark.parametrize("when", ["compiled under the tool", "compiled before"])
def test_the_backward_of_compiled_regions_is_seen(device, when):
    function = lambda t: (t.sin() + 1).exp()  # noqa: E731
    compiled = torch.compile(function, backend="aot_eager")
    x = torch.randn(4, device=device, requires_grad=True)
    if when == "compiled before":
        compiled(x).sum().backward()
        x.grad = None
    observe, compare = op_tools.OpObserve(), op_tools.OpAutoCompare()
    with observe, compare:
        compiled(x).sum().backward()
    y = x.detach().clone().requires_grad_()
    function(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    forward = [op for op in ops(observe, "forward") if op in ("aten::sin", "aten::exp")]
    assert forward == ["aten::sin", "aten::exp"]
    backward = ops(observe, "backward")
    assert "aten::cos" in backward and backward.count("aten::mul.Tensor") >= 2
    assert {"aten::sin", "aten::cos", "aten::mul.Tensor"} <= acted(compare)
    assert compare.findings() == []


def test_copies_are_seen(device):
    """Within a device, to and from it, to another dtype; on every one of them."""
    here, there = torch.randn(4, 3), torch.empty(4, 3, device=device)
    turned = torch.empty(3, 4, device=device, dtype=torch.float16)
    observe, compare, capture = op_tools.OpObserve(), op_tools.OpAutoCompare(), op_tools.OpCapture()
    with observe, compare, capture:
        there.copy_(here)  # from the host
        turned.copy_(there.t())  # other strides, other dtype
        here.copy_(there)  # to the host
        there.double()
        if device != "cpu":
            there.cpu(), here.to(device)
    assert ops(observe).count("aten::copy_") == 3
    assert ops(observe).count("aten::_to_copy") == (1 if device == "cpu" else 3)
    assert compare.findings() == []
    moved = {"aten::copy_", "aten::_to_copy"}
    assert moved <= acted(compare) and moved <= acted(capture)
    (filled, *_) = captures.open(capture.folder).select(op="aten::copy_")
    assert torch.equal(filled.load()[0][1].cpu(), here)


FUSED = {
    torch.optim.SGD: "aten::_fused_sgd_",
    torch.optim.Adam: "aten::_fused_adam_",
    torch.optim.AdamW: "aten::_fused_adamw_",
    torch.optim.Adagrad: "aten::_fused_adagrad_",
}


@pytest.mark.parametrize("make", FUSED, ids=lambda make: make.__name__)
def test_fused_optimizers(device, make):
    """One operator that writes lists of parameters and states: every tool follows it."""
    try:  # some are refused when made, some at the first step
        probe = torch.zeros(2, device=device, requires_grad=True)
        probe.grad = torch.zeros_like(probe)
        make([probe], fused=True).step()
    except RuntimeError as error:
        assert device == "cuda", error
        pytest.skip(f"this PyTorch: {error}")

    def train(tool=None):
        torch.manual_seed(0)
        dtype = torch.bfloat16 if isinstance(tool, op_tools.OpDtypeCast) else torch.float32
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).to(device, dtype)
        optimizer = make(model.parameters(), lr=0.1, fused=True)
        x = torch.linspace(-1, 1, 10, device=device, dtype=dtype).view(2, 5)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            with tool or contextlib.nullcontext():
                optimizer.step()
        return [p.detach().float().cpu() for p in model.parameters()]

    plain = train()
    for name in TOOLS:
        tool = getattr(op_tools, name)()
        exact = name not in ("OpDtypeCast", "OpFallback")
        for a, b in zip(plain, train(tool), strict=True):
            if exact:
                assert torch.equal(a, b), name
            else:
                loose = 1e-5 if name == "OpFallback" else 0.05
                torch.testing.assert_close(a, b, rtol=loose, atol=loose, msg=name)
        if name == "OpOverflowCheck":
            assert tool._last.checked >= 12
        elif name == "OpFallback" and device == "cpu":
            assert acted(tool) == set()
        else:
            assert FUSED[make] in acted(tool), (name, acted(tool))
        if name == "OpObserve":
            assert {r["phase"] for r in tool.records() if r["op"] == FUSED[make]} == {"optimizer"}
        if name == "OpAutoCompare":
            assert tool.findings() == []


def test_operators_called_by_cpp_are_seen(device):
    """The LSTM's loop over time and its gates run in C++."""
    lstm = nn.LSTM(4, 4).to(device)
    tool = op_tools.OpObserve()
    with tool:
        out, _ = lstm(torch.ones(3, 2, 4, device=device))
        out.sum().backward()
        torch._C._nn.gelu(out)
    assert len(ops(tool, "forward")) > 3
    assert ops(tool, "backward")
    assert "aten::gelu" in ops(tool)


def test_clipping_gradients_is_seen(device):
    model = nn.Linear(3, 3).to(device)
    model(torch.ones(2, 3, device=device)).sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    observe, compare = op_tools.OpObserve(), op_tools.OpAutoCompare()
    with observe, compare:
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    for old, p in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, old * (0.1 / norm))
    seen = set(ops(observe))
    assert seen & {"aten::_foreach_norm.Scalar", "aten::linalg_vector_norm"}
    assert seen & {"aten::_foreach_mul_.Tensor", "aten::mul_.Tensor"}
    assert {op for op in seen if "norm" in op or "mul_" in op} <= acted(compare)
    assert compare.findings() == []


class Watched(torch.utils.data.Dataset):
    """Its items are computed under a tool started in the worker."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        idle = _C.idle() and _C.tap_count() == 0
        tool = op_tools.OpObserve()
        tool.report = lambda: None
        with tool:
            value = torch.full((2,), float(index)).sin()
        return value, idle and "aten::sin" in ops(tool)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers(monkeypatch, method):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    loader = torch.utils.data.DataLoader(
        Watched(),
        batch_size=2,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context(method),
    )
    with op_tools.OpObserve():
        batches = list(loader)
    assert torch.cat([values for values, _ in batches]).shape == (4, 2)
    assert all(right.all() for _, right in batches)
