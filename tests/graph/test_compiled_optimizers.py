# SPDX-License-Identifier: Apache-2.0
"""Compiled optimizers with several groups of parameters and a schedule: held to PyTorch's CPU, not compiled, in float64."""

import copy

import pytest
import torch
import torchair

OPTIMIZERS = {
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=1e-2),
    "Adam amsgrad": lambda groups: torch.optim.Adam(groups, lr=1e-2, amsgrad=True, maximize=True),
    "NAdam": lambda groups: torch.optim.NAdam(groups, lr=1e-2),
    "AdamW capturable": lambda groups: torch.optim.AdamW(groups, lr=1e-2, capturable=True),
}
SHAPES = [(40, 30), (7,), (64, 64), ()]


def trained(name, device, dtype, compiled):
    """Parameters and counts of steps after a schedule has changed the rates, which is another graph,
    and after a saved state has been loaded."""
    draw = torch.Generator().manual_seed(5)
    values = [torch.randn(shape, generator=draw) for shape in SHAPES]
    parameters = [torch.nn.Parameter(v.to(device, dtype)) for v in values]
    if device == "cpu" and "capturable" in name:
        name = name.removesuffix(" capturable")
    optimizer = OPTIMIZERS[name](
        [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 3e-3}]
    )
    step = torch.compile(optimizer.step, backend=torchair.get_npu_backend())
    for turn in range(6):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=draw).to(device, dtype)
        (step if compiled else optimizer.step)()
        if turn == 2:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        if turn == 4:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return parameters, [optimizer.state[p]["step"].item() for p in parameters]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_groups_count_their_steps(name):
    """Dynamo put copies in place of the first group's counters: its steps stayed 0, and the next
    graph began with another bias correction."""
    torch._dynamo.reset()
    wanted, steps = trained(name, "cpu", torch.float64, compiled=False)
    got, counted = trained(name, "npu", torch.float32, compiled=True)
    assert counted == steps == [6.0] * len(SHAPES)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-5)
