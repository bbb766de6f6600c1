# SPDX-License-Identifier: Apache-2.0
"""torch.func on npu tensors gives what it gives on the CPU."""

import copy

import pytest
import torch
from small_models import make
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map


def norm(x, w):
    return (torch.tanh(x @ w) ** 2).sum()


def sdpa(q):
    return F.scaled_dot_product_attention(q, q.sin(), q.cos())


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X, W, Q = random(4, 3), random(3, 3), random(2, 2, 5, 8)
IMAGES, KERNELS = random(3, 2, 3, 6, 6), random(3, 4, 3, 3, 3)

CASES = {
    "vmap": (lambda x, w: vmap(lambda row: (row @ w).relu())(x), X, W),
    "vmap over columns": (lambda x: vmap(lambda c: c.sort().values.cumsum(0), in_dims=1)(x), X),
    "nested vmap": (lambda x, w: vmap(vmap(torch.mul, (0, None)), (None, 0))(x[0], w[0]), X, W),
    "vmap index": (lambda x: vmap(lambda r: r[r.argmax()[None]])(x), X),
    "grad": (grad(norm), X, W),
    "vmap of grad": (lambda x, w: vmap(grad(norm), (0, None))(x[:, None], w), X, W),
    "grad of vmap": (lambda x, w: grad(lambda a: vmap(norm, (0, None))(a[:, None], w).sum())(x), X, W),
    "grad of grad": (lambda x: grad(lambda a: grad(lambda b: (b**3).sum())(a).sum())(x), X),
    "jvp": (lambda x, w: jvp(norm, (x, w), (x.cos(), w.sin())), X, W),
    "vjp": (lambda x, w: vjp(norm, x, w)[1](torch.ones((), device=x.device)), X, W),
    "jacrev": (jacrev(lambda x: torch.sin(x @ x.t())), X),
    "jacfwd": (jacfwd(lambda x: torch.sin(x @ x.t())), X),
    "hessian": (hessian(lambda x: (x.exp().sum(1) ** 2).sum()), X),
    "linearize": (lambda x: linearize(lambda y: y.sin().sum(), x)[1](x), X),
    "functionalize": (functionalize(lambda a: a.clone().add_(1).view(-1).mul_(2)), X),
    "sdpa vmap": (vmap(sdpa), random(3, 2, 2, 5, 8)),
    "sdpa grad": (grad(lambda q: sdpa(q).sin().sum()), Q),
    "sdpa vmap of grad": (vmap(grad(lambda q: sdpa(q).sin().sum())), random(3, 2, 2, 5, 8)),
    "sdpa jacfwd": (lambda q: jacfwd(lambda a: sdpa(a).sum(-1))(q), random(1, 1, 3, 4)),
    "conv vmap": (vmap(F.conv2d), IMAGES, KERNELS),
    "conv vmap of grad": (vmap(grad(lambda i, k: F.conv2d(i, k).sin().sum())), IMAGES, KERNELS),
    "conv jvp": (lambda i, k: jvp(F.conv2d, (i[0], k[0]), (i[1], k[1])), IMAGES, KERNELS),
    "layer_norm jvp": (lambda x: jvp(lambda a: F.layer_norm(a, (3,)), (x,), (x.cos(),)), X),
    "batch_norm hessian": (
        hessian(lambda a: F.batch_norm(a, None, None, training=True).pow(3).sum()), random(3, 2),
    ),
    "embedding grad": (grad(lambda w: F.embedding(torch.arange(2, device=w.device), w).sin().sum()), W),
    "cross_entropy hessian": (
        hessian(lambda x: F.cross_entropy(x, torch.arange(3, device=x.device))), random(3, 3),
    ),
}  # fmt: skip
# PyTorch's own CPU flash attention has no forward derivative.
CPU_REFERENCE = {"sdpa jacfwd": lambda q: jacrev(lambda a: sdpa(a).sum(-1))(q)}


@pytest.mark.parametrize("name", list(CASES))
def test_as_on_cpu(name):
    function, *inputs = CASES[name]
    want = CPU_REFERENCE.get(name, function)(*inputs)
    got = function(*(x.npu() for x in inputs))
    assert all(leaf.is_npu for leaf in tree_leaves(got))
    torch.testing.assert_close(tree_map(torch.Tensor.cpu, got), want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "conv", "gpt"])
def test_per_sample_gradients(name):
    model, x = make(name)
    model.eval()  # batch statistics are of the batch

    def loss(params, buffers, row):
        return functional_call(model, (params, buffers), (row[None],)).pow(2).mean()

    def run(device):
        params = {k: v.detach().to(device) for k, v in model.named_parameters()}
        buffers = {k: v.to(device) for k, v in model.named_buffers()}
        return vmap(grad(loss), (None, None, 0))(params, buffers, x.to(device))

    want, got = run("cpu"), run("npu")
    torch.testing.assert_close({k: v.cpu() for k, v in got.items()}, want, atol=1e-5, rtol=1e-3)


def test_ensembles():
    models = [torch.nn.Linear(3, 2) for _ in range(3)]

    def run(models, x):
        params, buffers = stack_module_state(models)
        base = copy.deepcopy(models[0]).to("meta")

        def one(params, buffers, x):
            return functional_call(base, (params, buffers), (x,))

        return vmap(one, in_dims=(0, 0, None))(params, buffers, x)

    want = run(models, X)
    got = run([copy.deepcopy(model).npu() for model in models], X.npu())
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("draw", ["randn_like", "rand", "dropout"])
def test_randomness_of_vmap(draw):
    def one(row):
        if draw == "rand":
            return row + torch.rand(200, device="npu")
        if draw == "dropout":
            return F.dropout(row, 0.5)
        return torch.randn_like(row)

    rows = torch.ones(6, 200, device="npu")
    same = vmap(one, randomness="same")(rows)
    different = vmap(one, randomness="different")(rows)
    assert (same == same[0]).all()
    assert not (different[0] == different[1]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(one)(rows)
