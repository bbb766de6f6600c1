# SPDX-License-Identifier: Apache-2.0
"""Four threads train while tools come and go; also run with the core under sanitizers."""

import os
import threading

import op_tools
import pytest
import torch
from op_tools import _C
from optools_helpers import TOOLS, acted, quiet
from torch import nn
from torch.utils.checkpoint import checkpoint

THREADS = 4
TURNS = int(os.environ.get("OPTOOLS_STRESS_TURNS", len(TOOLS)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 4), nn.LayerNorm(8)

    def forward(self, x):
        x = checkpoint(lambda t: self.norm(self.first(t)).relu(), x, use_reentrant=False)
        return self.second(x).square().mean()


def train(device, steps=2):
    generator = torch.Generator().manual_seed(0)
    model = Net().to(device)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 8, generator=generator).to(device)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
        with pytest.raises(RuntimeError):
            x @ torch.ones(3, 3, device=device)
    return [p.detach().cpu() for p in model.parameters()]


def run_in_threads(work):
    problems = []

    def guarded(index):
        try:
            work(index)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads, problems


@pytest.fixture(autouse=True)
def cast(monkeypatch):
    """There is no half here for OpDtypeCast to widen: it widens float32."""
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.float64")


def expect_sound(tool, device):
    assert not tool._last.failure and not tool.gave_up, tool._last.failure
    if isinstance(tool, op_tools.OpAutoCompare):
        assert tool.errors() == []
    if device != "cpu" or not isinstance(tool, op_tools.OpFallback):
        assert acted(tool) or was_spared(tool), tool


def was_spared(tool):
    """A call is run elsewhere, or cast, once: another thread's tool of the kind may do it for all."""
    return isinstance(tool, (op_tools.OpFallback, op_tools.OpDtypeCast)) and bool(
        {"another tool runs it", "another tool cast it"} & {why for _, why, _ in tool.counts()}
    )


@pytest.mark.parametrize("names", ["", "torch.nn.functional.linear,torch.Tensor.relu"])
def test_tools_come_and_go_while_four_threads_train(device, monkeypatch, names):
    plain = train(device)
    for tool in TOOLS if names else ():
        monkeypatch.setenv(f"OP_{getattr(op_tools, tool).family}_LIST", names)
    before = _C.dump_dispatcher()
    done = threading.Event()

    def work(_):
        while not done.is_set():
            for a, b in zip(plain, train(device), strict=True):
                torch.testing.assert_close(a, b)

    threads, problems = run_in_threads(work)
    try:
        for turn in range(TURNS):
            outer, inner = (
                quiet(getattr(op_tools, TOOLS[(turn + k) % len(TOOLS)])()) for k in range(2)
            )
            outer.call_sites = True
            inner.modules = ".*"
            outer.start()
            inner.start()
            train(device, 1)
            outer.stop()
            train(device, 1)
            inner.stop()
            for tool in (outer, inner):
                expect_sound(tool, device)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not problems, problems
    assert _C.dump_dispatcher() == before


def test_every_thread_starts_its_own_tools(device):
    def work(index):
        for turn in range(TURNS):
            tool = quiet(getattr(op_tools, TOOLS[(index + turn) % len(TOOLS)])())
            with tool:
                train(device, 1)
            expect_sound(tool, device)

    threads, problems = run_in_threads(work)
    for thread in threads:
        thread.join()
    assert not problems, problems
