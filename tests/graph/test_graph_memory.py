# SPDX-License-Identifier: Apache-2.0
"""What compiled graphs hold: never more than eager mode at the worst moment, and an optimizer step
that is computed a few parameters at a time."""

import copy

import pytest
import torch
import torchair
import versions
from torchair import _compiler

backend = torchair.get_npu_backend


def peak(run) -> int:
    """Bytes that a call takes beyond what there was before it."""
    run()
    torch.npu.synchronize()
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    run()
    return torch.npu.max_memory_allocated() - before


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.grow = torch.nn.Linear(width, 4 * width)
        self.shrink = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.shrink(torch.nn.functional.gelu(self.grow(self.norm(x))))


def parts(compiled: bool):
    """Forward, backward and optimizer step of a small model, to be measured one by one."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(Block(64) for _ in range(3))).npu()
    x = torch.randn(256, 64, device="npu")
    optimizer = torch.optim.AdamW(model.parameters())
    loss = lambda: model(x).square().mean()  # noqa: E731
    forward, step = loss, optimizer.step
    if compiled:
        forward = torch.compile(loss, backend=backend())
        step = torch.compile(optimizer.step, backend=backend())

    def training():
        optimizer.zero_grad()
        forward().backward()
        step()

    for _ in range(3):  # recorded at the second
        training()
    return forward, lambda: forward().backward(), training, step


def test_no_part_of_training_takes_more_than_eager():
    eager = [peak(part) for part in parts(False)]
    graph = [peak(part) for part in parts(True)]
    names = ("forward", "forward and backward", "step", "optimizer")
    for name, allowed, taken in zip(names, eager, graph, strict=True):
        assert taken <= allowed, f"{name}: {taken} bytes, eager mode {allowed}"


def adamw(shapes, dtype=torch.float32):
    draw = torch.Generator().manual_seed(3)
    parameters = [
        torch.nn.Parameter(torch.randn(s, generator=draw, dtype=dtype).npu()) for s in shapes
    ]
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=draw, dtype=dtype).npu()
    return parameters, torch.optim.AdamW(parameters, lr=1e-2)


# 1.2 MB in all: several tiles, one tensor larger than a tile, one without elements.
SHAPES = [(256, 256), (256,), (0,), (3, 5, 7), (512, 300), (1,), (128, 128), (200, 100)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "off", ["", "chains", "chains,tiles", "numbers", "numbers,chains,tiles,reuse,copies"]
)
def test_an_optimizer_in_tiles_gives_the_same_bits(off, dtype, counts, monkeypatch):
    """Against the traced operators called one by one (aot_eager)."""
    monkeypatch.setenv("NPU_GRAPH_OFF", off)
    shapes = SHAPES if off in ("", "chains") else SHAPES[:3] + SHAPES[4:5]
    sides = []
    for how in ("aot_eager", backend()):
        torch._dynamo.reset()
        parameters, optimizer = adamw(shapes, dtype)
        step = torch.compile(optimizer.step, backend=how)
        for turn in range(4):
            for p in parameters:
                p.grad.mul_(1 + turn)
            step()
        sides.append(parameters + [optimizer.state[p]["exp_avg_sq"] for p in parameters])
    for wanted, got in zip(*sides, strict=True):
        assert torch.equal(wanted, got)
    if off == "":  # what is fused needs no tiles
        assert counts("programs") > 0
    elif off.startswith("chains"):
        tiled = 2 if versions.dynamo_traces_adamw_as_eager() else 1
        assert counts("tiled") == (tiled if off == "chains" else 0)


def test_numbers_on_the_cpu_are_read_at_every_replay(counts):
    """Divisors on the CPU, as an optimizer's bias corrections: held to float64 by hand."""
    values = [torch.randn(40, dtype=torch.float64) for _ in range(3)]
    xs = [v.float().npu() for v in values]

    def scaled(numbers):
        return torch._foreach_div(torch._foreach_add(xs, 1.0), numbers)

    run = torch.compile(scaled, backend=backend())
    for turn in range(4):
        numbers = [torch.tensor(1.5 + i + turn) for i in range(3)]
        for got, value, number in zip(run(numbers), values, numbers, strict=True):
            wanted = (value.float().double() + 1) / number.double()
            torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-6, atol=1e-7)
    (only,) = _compiler.runners
    found = only.replayer.counts()
    assert found["replayed"] >= 2 and found["islands"] == 0 and found["frames"] == 2


def test_numbers_of_another_dtype_leave_the_recording():
    xs = [torch.ones(4, device="npu") for _ in range(2)]

    def body(numbers, dtype):
        return torch._foreach_div(xs, [n.to(dtype) for n in numbers])

    run = torch.compile(copy.copy(body), backend=backend(), dynamic=False)
    numbers = [torch.tensor(2.0), torch.tensor(4.0)]
    for dtype in (torch.float32, torch.float64, torch.float32, torch.float16):
        for _ in range(3):
            for got, wanted in zip(run(numbers, dtype), (0.5, 0.25), strict=True):
                assert got.tolist() == [wanted] * 4
