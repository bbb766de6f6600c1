# SPDX-License-Identifier: Apache-2.0
"""Gradients of gradients of Ascend's operators, in float64 against finite differences."""

import functools

import pytest
import torch
from table import CASES, DEVICE

# What an operator without second derivatives says.
REFUSES = ("no second derivative", "not implemented", "not differentiable")
WITH_GRADIENTS = [case for case in CASES if case.grad]


def seen_wide(value):
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE, torch.float64) if value.is_floating_point() else value.to(DEVICE)
    if isinstance(value, (list, tuple)):
        return type(value)(seen_wide(v) for v in value)
    return value


@pytest.mark.parametrize("case", WITH_GRADIENTS, ids=str)
def test_second_derivatives(case):
    args = [seen_wide(a) for a in case.args]
    kwargs = {name: seen_wide(a) for name, a in case.kwargs.items()}
    draw = torch.Generator().manual_seed(1)
    for i in case.grad:  # no ties: finite differences would step over them
        noise = torch.randn(args[i].shape, generator=draw, dtype=torch.float64)
        args[i] = (args[i] + 1e-3 * noise.to(DEVICE)).requires_grad_()
    leaves = [args[i] for i in case.grad]
    op = functools.reduce(getattr, case.op.split("."), torch.ops.npu)

    def function(*inputs):
        given = list(args)
        for place, value in zip(case.grad, inputs):
            given[place] = value
        results = op(*given, **kwargs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        return tuple(r for r in results if isinstance(r, torch.Tensor) and r.requires_grad)

    try:
        torch.autograd.gradgradcheck(function, leaves, fast_mode=True, atol=1e-4, rtol=1e-3)
    except (RuntimeError, NotImplementedError) as error:
        assert any(text in str(error) for text in REFUSES), error
