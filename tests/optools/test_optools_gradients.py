# SPDX-License-Identifier: Apache-2.0
"""GradientWatch: an API call's own gradients, and no other call's."""

import pytest
import torch
from op_tools.ditorch_compat.gradient_watch import GradientWatch
from torch.nn import functional as F


def watched(call, *args):
    """Calls with a watch; the list holds (grad_inputs, grad_outputs) once backward has been there."""
    found = []
    watch = GradientWatch(args)
    result = call(*args)
    watch.attach(result, lambda given, received: found.append((given, received)))
    return result, found


def leaf(device, *shape):
    return torch.randn(*shape, device=device, requires_grad=True)


def test_only_its_own_share(device):
    """The argument feeds another call as well."""
    x = leaf(device, 3)
    y, found = watched(torch.sin, x)
    (y + x * 10).sum().backward()
    ((grad,), (received,)) = found[0]
    assert torch.equal(grad, x.detach().cos()) and received.tolist() == [1, 1, 1]
    torch.testing.assert_close(x.grad, grad + 10)


def test_a_call_of_many_nodes(device):
    x, w, b = leaf(device, 2, 3, 4), leaf(device, 5, 4), leaf(device, 5)
    y, found = watched(F.linear, x, w, b)
    y.square().sum().backward()
    for got, expected in zip(found[0][0], (x.grad, w.grad, b.grad), strict=True):
        torch.testing.assert_close(got, expected)
    assert len(found) == 1


def test_the_same_tensor_twice(device):
    x = leaf(device, 3)
    y, found = watched(torch.mul, x, x)
    y.sum().backward()
    first, second = found[0][0]
    torch.testing.assert_close(first, 2 * x.detach())
    assert second is None


def test_in_place(device):
    x = leaf(device, 3)
    y = x * 1
    z, found = watched(torch.Tensor.mul_, y, 5.0)
    assert z is y
    z.sum().backward()
    assert found[0][0][0].tolist() == [5, 5, 5]


def test_results_nobody_used(device):
    x = leaf(device, 4, 3)
    parts, found = watched(torch.unbind, x)
    parts[1].sum().backward()
    (grad,), received = found[0]
    assert torch.equal(grad, x.grad) and [r is None for r in received] == [True, False, True, True]


def test_twice_through_the_same_graph_is_told_once(device):
    x = leaf(device, 3)
    y, found = watched(torch.sin, x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(found) == 1


def test_gradients_are_copies(device):
    x = leaf(device, 3)
    y, found = watched(torch.sin, x)
    y.sum().backward()
    before = found[0][0][0].clone()
    x.grad.zero_()
    assert torch.equal(found[0][0][0], before)


def test_no_backward(device):
    plain = torch.ones(3, device=device)
    x = leaf(device, 3)
    for call, args in (
        (torch.sin, (plain,)),
        (torch.Tensor.contiguous, (x,)),
        (torch.Tensor.detach, (x,)),
    ):
        watch = GradientWatch(args)
        assert not watch.attach(call(*args), pytest.fail)
    with torch.no_grad():
        watch = GradientWatch((x,))
        assert not watch.attach(torch.sin(x), pytest.fail)


def test_what_comes_by_another_way_is_not_walked(device):
    """A closure's tensor: its history is not the call's."""
    x, hidden = leaf(device, 3), leaf(device, 3)
    history = hidden
    for _ in range(50):
        history = history * 1.01
    watch = GradientWatch((x,))
    result = x * history
    edges = watch._edges({result.grad_fn}, {(e[0], e[1]) for e in watch._inputs})
    assert list(edges) == [result.grad_fn]
