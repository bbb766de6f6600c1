# SPDX-License-Identifier: Apache-2.0
"""Gradients that rows of ops/npu give (key `gradient`): one node of autograd serves them all."""

import pytest
import torch
import torch_npu
from table import DEVICE


def rand(*size, grad=False):
    return torch.rand(size, dtype=torch.float32).sub(0.5).to(DEVICE).requires_grad_(grad)


def kept_by(function, *args, **kwargs) -> set[int]:
    """Addresses of the tensors that the call keeps for backward."""
    kept = set()

    def note(tensor):
        kept.add(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        function(*args, **kwargs)
    return kept


def test_rotation_keeps_its_input_only_for_gradients_of_the_angles():
    x, cos, sin = rand(2, 3, 4, 8, grad=True), rand(1, 3, 1, 8), rand(1, 3, 1, 8)
    kept = kept_by(torch_npu.npu_rotary_mul, x, cos, sin)
    assert x.data_ptr() not in kept and {cos.data_ptr(), sin.data_ptr()} <= kept
    kept = kept_by(torch_npu.npu_rotary_mul, x, cos.requires_grad_(), sin)
    assert x.data_ptr() in kept


def test_permuting_keeps_places_not_tokens():
    tokens = rand(5, 4, grad=True)
    experts = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0]], device=DEVICE)
    kept = kept_by(torch_npu.npu_moe_token_permute, tokens, experts)
    assert len(kept) == 1 and tokens.data_ptr() not in kept


@pytest.mark.parametrize("used", ["norm", "sum", "both"])
def test_gradients_of_one_result_or_of_both(used):
    x1, x2, gamma = rand(3, 8, grad=True), rand(3, 8, grad=True), rand(8, grad=True)
    own = [t.detach().cpu().double().requires_grad_() for t in (x1, x2, gamma)]

    def loss(norm, total):
        weight = torch.arange(24.0).view(3, 8).to(norm)
        first = (norm * weight).sum() if used != "sum" else 0
        return first + ((total * total).sum() if used != "norm" else 0)

    y, _, total = torch_npu.npu_add_rms_norm(x1, x2, gamma, 1e-6)
    loss(y, total).backward()
    s = own[0] + own[1]
    rms = torch.rsqrt((s * s).mean(-1, keepdim=True) + 1e-6)
    loss(s * rms * own[2], s).backward()
    for got, right in zip((x1, x2, gamma), own):
        if right.grad is None:
            assert got.grad is None or not got.grad.any()
        else:
            torch.testing.assert_close(got.grad.cpu().double(), right.grad, rtol=1e-4, atol=1e-4)


def test_one_tensor_as_two_arguments():
    x = rand(6, grad=True)
    own = x.detach().cpu().double().requires_grad_()

    def reference(v):
        return v * torch.rsqrt((v * v).mean() + 1e-6) * v

    def twice(f, v):
        (first,) = torch.autograd.grad(f(v).sum(), v, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), v)
        return first.detach().cpu().double(), second.cpu().double()

    got = twice(lambda v: torch_npu.npu_rms_norm(v, v, 1e-6)[0], x)
    for a, b in zip(got, twice(reference, own)):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_gradient_of_a_second_result_that_has_none():
    x = rand(4, 8, grad=True)
    y, gelu = torch_npu.npu_geglu(x)
    assert y.requires_grad and not gelu.requires_grad
    assert y.grad_fn is not None and gelu.grad_fn is None


def test_functions_of_torch_func_see_the_composition():
    x, gamma = rand(4, 8), rand(8)

    def loss(v):
        return torch_npu.npu_rms_norm(v, gamma, 1e-6)[0].square().sum()

    direct = x.clone().requires_grad_()
    loss(direct).backward()
    torch.testing.assert_close(torch.func.grad(loss)(x), direct.grad)
    rows = torch.func.vmap(torch.func.grad(loss))(x)
    torch.testing.assert_close(rows, direct.grad, rtol=1e-4, atol=1e-5)
    _, tangent = torch.func.jvp(loss, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, direct.grad.sum(), rtol=1e-4, atol=1e-4)


def test_inference_and_no_grad_record_nothing():
    x = rand(4, 8, grad=True)
    with torch.no_grad():
        assert torch_npu.npu_swiglu(x).grad_fn is None
    with torch.inference_mode():
        assert torch_npu.npu_swiglu(x).is_inference()
    assert torch_npu.npu_swiglu(x.detach()).grad_fn is None
