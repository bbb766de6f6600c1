# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels, put over the right ones of an accelerator for the time of a test.

Each is a mistake kernels are known for: a fault is an operator of aten, a kernel (most work out
their wrong answer in host memory, see `computed`), and a call on a device that uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_map


@dataclass
class Fault:
    name: str
    op: str  # as torch.library names it
    kernel: Callable
    call: Callable[[str], object]
    says: str = ""  # what the report has to say


def host(tree: object) -> object:
    return tree_map(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t, tree)


def back(tree: object, like: torch.Tensor) -> object:
    """To the device of a tensor."""
    return tree_map(lambda t: t.to(like.device) if isinstance(t, torch.Tensor) else t, tree)


def computed(change: Callable) -> Callable:
    """A kernel from what it does with host tensors."""

    def kernel(x, *args, **kwargs):
        return back(change(host(x), *host(args), **host(kwargs)), x)

    return kernel


def tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


def sums_in_bf16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for i in range(0, a.shape[1], 16):
        total = (total + a[:, i : i + 16] @ b[i : i + 16]).bfloat16().float()
    return total


def one_row_off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    result = a @ b
    result[1] *= 1.0001
    return result


def tail_not_computed(x: torch.Tensor) -> torch.Tensor:
    result = x.exp()
    result.view(-1)[-(x.numel() % 16) :] = 0
    return result


_stale: list[torch.Tensor] = []


def stale(x: torch.Tensor) -> torch.Tensor:
    """Returns the answer to the call before."""
    _stale.append(x.tanh())
    return _stale[-2] if len(_stale) > 1 else _stale[-1]


def off_by_one(x, dim, index, *, sparse_grad=False):
    return x.gather(dim, (index + 1).clamp(max=x.shape[dim] - 1))


def not_written(x, other, *, alpha=1):
    return x  # on the device: self, untouched


def forgets_the_last(xs, others, *, alpha=1):
    for x, other in list(zip(xs, others))[:-1]:
        x.add_(other, alpha=alpha)


def turned_strides(a: torch.Tensor, other: torch.Tensor, *, alpha=1) -> torch.Tensor:
    right = host(a).add(host(other), alpha=alpha)
    return back(right, a).t().contiguous().t()


def reads_and_writes(x: torch.Tensor) -> torch.Tensor:
    result = back(host(x).neg(), x)
    x.copy_(result)
    return result


def raises_version(x: torch.Tensor) -> torch.Tensor:
    torch.autograd.graph.increment_version(x)
    return back(host(x).abs(), x)


def other_dtype(x: torch.Tensor) -> torch.Tensor:
    return back(host(x).sin().double(), x)


def view_with_memory(x, dim0, dim1):
    own = host(x).transpose(dim0, dim1).clone(memory_format=torch.preserve_format)
    return back(own, x)


def duplicated_choice(x, k, dim=-1, largest=True, sorted=True):
    values, indices = x.topk(k, dim, largest, sorted)
    indices[..., 1] = indices[..., 0]
    return values, indices


def narrow_variance(x, shape, weight, bias, eps):
    out, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
    return out, mean, (rstd.pow(-2) * 1.001).rsqrt()


def biased_softmax(x, dim, half_to_float):
    result = x.bfloat16().float().softmax(dim)
    return result / result.sum(dim, keepdim=True)


def missing_nan(x: torch.Tensor) -> torch.Tensor:
    return x.relu().nan_to_num(0.0)


def forgets_bias(grad, x, w, bias_sizes, stride, padding, dilation, transposed, *rest):
    found = list(
        torch.ops.aten.convolution_backward(
            grad, x, w, bias_sizes, stride, padding, dilation, transposed, *rest
        )
    )
    found[2] = found[2] * (1 - 1 / grad.shape[0])  # one image less
    return tuple(found)


def lopsided(x, a=0.0, b=1.0, *, generator=None):
    return x.copy_(torch.rand(x.shape).square() * (b - a) + a)


def too_wide(x, mean=0.0, std=1.0, *, generator=None):
    return x.copy_(torch.empty(x.shape).normal_(mean, 1.25 * std))


def too_often(x, p=0.5, *, generator=None):
    return x.copy_(torch.empty(x.shape).bernoulli_(p + 0.05))


def too_fast(x, lambd=1.0, *, generator=None):
    return x.copy_(torch.empty(x.shape).exponential_(1.2 * lambd))


def truncated_sum(x, dim, keepdim=False, *, dtype=None):
    return x.narrow(dim[0], 0, x.shape[dim[0]] - 1).sum(dim, keepdim)


def flushed(function: Callable) -> Callable:
    """Results below 1e-6 become 0."""

    def run(*args, **kwargs):
        y = function(*args, **kwargs)
        return y.masked_fill(y.abs() < 1e-6, 0.0)

    return run


def last_of_equals(find: Callable) -> Callable:
    def run(x, dim=None, keepdim=False):
        flipped = x.flip(dim)
        return x.shape[dim] - 1 - find(flipped, dim, keepdim)

    return run


def last_maximum(x, dim, keepdim=False):
    return x.amax(dim, keepdim), last_of_equals(torch.argmax)(x, dim, keepdim)


def biased_variance(x, dim=None, *, correction=None, keepdim=False):
    return x.var(dim, correction=0)


def half_pixel(x, size, align_corners, *scales):
    return torch.nn.functional.interpolate(x, size, mode="bilinear", align_corners=True)


def short_mean(x, dim, keepdim=False, *, dtype=None):
    return x.sum(dim) / (x.shape[dim[0]] - 1)


def unweighted(grad, indices, count, padding, by_frequency):
    return torch.zeros(count, grad.shape[-1]).index_put((indices,), grad)  # the last one wins


def _ties(device: str) -> torch.Tensor:
    return torch.tensor([[1.0, 3, 3, 2], [5, 5, 5, 5]]).to(device)


def _tail(device: str) -> torch.Tensor:
    return torch.linspace(-30, 3, 200).to(device)


def _random(device: str, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def _mm(device: str) -> object:
    return _random(device, 40, 256) @ _random(device, 256, 24, seed=1)


def _conv(device: str) -> object:
    conv = torch.nn.Conv2d(2, 3, 3).to(device)
    return conv(_random(device, 4, 2, 8, 8)).square().sum().backward()


def _twice(x: torch.Tensor) -> object:
    return x.tanh(), (x + 1).tanh()


FAULTS = [
    Fault("dropped last k", "mm", computed(lambda a, b: a[:, :-1] @ b[:-1]), _mm),
    Fault("tf32 inputs", "mm", computed(lambda a, b: tf32(a) @ tf32(b)), _mm),
    Fault("bf16 accumulation", "mm", computed(sums_in_bf16), _mm),
    Fault("one row x 1.0001", "mm", computed(one_row_off), _mm),
    Fault(
        "tail not computed", "exp", computed(tail_not_computed), lambda d: _random(d, 1003).exp()
    ),
    Fault("stale output", "tanh", computed(stale), lambda d: _twice(_random(d, 50))),
    Fault(
        "off-by-one index",
        "gather",
        computed(off_by_one),
        lambda d: _random(d, 6, 9).gather(1, torch.arange(6, device=d)[:, None]),
        "have to be equal",
    ),
    Fault("missing in-place write", "add_.Tensor", not_written, lambda d: _random(d, 9).add_(1.5)),
    Fault(
        "last of a list not written",
        "_foreach_add_.List",
        forgets_the_last,
        lambda d: torch._foreach_add_(
            [_random(d, 9), _random(d, 5)], [_random(d, 9), _random(d, 5)]
        ),
    ),
    Fault(
        "swapped stride",
        "add.Tensor",
        turned_strides,
        lambda d: _random(d, 4, 5) + _random(d, 4, 5),
        "strides",
    ),
    Fault(
        "writes its input",
        "neg",
        reads_and_writes,
        lambda d: _random(d, 20).neg(),
        "writes to argument self",
    ),
    Fault(
        "raises a version",
        "abs",
        raises_version,
        lambda d: _random(d, 20).abs(),
        "version",
    ),
    Fault(
        "result is the argument",
        "clone",
        lambda x, *, memory_format=None: x,
        lambda d: _random(d, 20).clone(),
        "shares the memory",
    ),
    Fault("wrong dtype", "sin", other_dtype, lambda d: _random(d, 20).sin(), "dtype Double"),
    Fault(
        "view with memory of its own",
        "transpose.int",
        view_with_memory,
        lambda d: _random(d, 4, 5).transpose(0, 1),
        "memory of its own",
    ),
    Fault(
        "one element chosen twice",
        "topk",
        computed(duplicated_choice),
        lambda d: _random(d, 3, 30).topk(4),
    ),
    Fault(
        "second result wrong",
        "native_layer_norm",
        computed(narrow_variance),
        lambda d: torch.nn.functional.layer_norm(_random(d, 6, 32), (32,)),
    ),
    Fault(
        "bf16 inside softmax",
        "_softmax",
        computed(biased_softmax),
        lambda d: _random(d, 6, 32).softmax(1),
    ),
    Fault(
        "NaN lost",
        "relu",
        computed(missing_nan),
        lambda d: torch.tensor([1.0, float("nan")]).to(d).relu(),
        "NaN",
    ),
    Fault("backward loses an image", "convolution_backward", computed(forgets_bias), _conv),
    Fault(
        "another distribution",
        "uniform_",
        lopsided,
        lambda d: torch.empty(4000, device=d).uniform_(),
        "distribution",
    ),
    Fault(
        "wrong deviation",
        "normal_",
        too_wide,
        lambda d: torch.empty(40000, device=d).normal_(2.0, 3.0),
        "distribution",
    ),
    Fault(
        "wrong probability",
        "bernoulli_.float",
        too_often,
        lambda d: torch.empty(40000, device=d).bernoulli_(0.3),
        "distribution",
    ),
    Fault(
        "wrong rate",
        "exponential_",
        too_fast,
        lambda d: torch.empty(40000, device=d).exponential_(0.5),
        "distribution",
    ),
    Fault(
        "one term left out of a sum",
        "sum.dim_IntList",
        computed(truncated_sum),
        lambda d: _random(d, 5, 300).sum(1),
    ),
    Fault(
        "silu flushed to 0 below 1e-6",
        "silu",
        computed(flushed(lambda x: x * x.sigmoid())),
        lambda d: torch.nn.functional.silu(_tail(d)),
    ),
    Fault(
        "its gradient flushed",
        "silu_backward",
        computed(flushed(torch.ops.aten.silu_backward.default)),
        lambda d: torch.ops.aten.silu_backward(torch.ones(200, device=d), _tail(d)),
    ),
    Fault(
        "mish flushed",
        "mish",
        computed(flushed(torch.nn.functional.mish)),
        lambda d: torch.nn.functional.mish(_tail(d)),
    ),
    Fault(
        "softplus flushed",
        "softplus",
        computed(flushed(torch.nn.functional.softplus)),
        lambda d: torch.nn.functional.softplus(_tail(d)),
    ),
    Fault(
        "sigmoid flushed",
        "sigmoid",
        computed(flushed(torch.sigmoid)),
        lambda d: _tail(d).sigmoid(),
    ),
    Fault(
        "argmax takes the last of equal values",
        "argmax",
        computed(last_of_equals(torch.argmax)),
        lambda d: _ties(d).argmax(1),
        "have to be equal",
    ),
    Fault(
        "argmin takes the last of equal values",
        "argmin",
        computed(last_of_equals(torch.argmin)),
        lambda d: _ties(d).argmin(1),
        "have to be equal",
    ),
    Fault(
        "max takes the last of equal values",
        "max.dim",
        computed(last_maximum),
        lambda d: _ties(d).max(1),
        "have to be equal",
    ),
    Fault(
        "variance of a population",
        "var.correction",
        computed(biased_variance),
        lambda d: _random(d, 5, 300).var(1),
    ),
    Fault(
        "corners aligned",
        "upsample_bilinear2d",
        computed(half_pixel),
        lambda d: torch.nn.functional.interpolate(
            _random(d, 1, 2, 5, 5), size=(9, 9), mode="bilinear"
        ),
    ),
    Fault(
        "mean of one element less",
        "mean.dim",
        computed(short_mean),
        lambda d: _random(d, 5, 3000).mean(1),
    ),
    Fault(
        "gradients of equal words not added",
        "embedding_dense_backward",
        computed(unweighted),
        lambda d: torch.ops.aten.embedding_dense_backward(
            _random(d, 8, 4), torch.tensor([1, 2, 1, 0, 3, 3, 2, 1]).to(d), 5, -1, False
        ),
    ),
    Fault(
        "atan2 without the sign of zero",
        "atan2",
        computed(lambda y, x: torch.atan2(y + 0.0, x)),
        lambda d: torch.atan2(torch.tensor([-0.0, 1.0]).to(d), torch.tensor([-1.0, 1.0]).to(d)),
    ),
    Fault(
        "clamp swallows NaN",
        "clamp",
        computed(lambda x, *limits: x.nan_to_num(nan=0.0).clamp(*limits)),
        lambda d: torch.tensor([float("nan"), 1.0, 5.0]).to(d).clamp(0, 2),
    ),
    Fault(
        "the last of equal places only",
        "scatter_add",
        computed(lambda x, dim, where, source: x.scatter(dim, where, source)),
        lambda d: torch.scatter_add(
            torch.zeros(3).to(d), 0, torch.tensor([0, 0, 1]).to(d), torch.ones(3).to(d)
        ),
    ),
    Fault(
        "logsumexp of what overflows",
        "logsumexp",
        computed(lambda x, dim, keep=False: x.exp().sum(dim, keepdim=keep).log()),
        lambda d: (_random(d, 8) * 200).logsumexp(0),
    ),
    Fault(
        "a remainder with the dividend's sign",
        "remainder.Tensor",
        computed(torch.fmod),
        lambda d: torch.remainder(torch.arange(-7, 7).to(d), torch.full((14,), 3).to(d)),
        "have to be equal",
    ),
    Fault(
        "a drawn index that is always the first",
        "multinomial",
        computed(lambda p, count, *rest, **more: torch.zeros(count, dtype=torch.long)),
        lambda d: torch.multinomial(torch.ones(20).to(d), 1000, True),
    ),
    Fault(
        "a transform in half precision",
        "_fft_r2c",
        computed(lambda x, *rest: torch.ops.aten._fft_r2c(x.half().float(), *rest)),
        lambda d: torch.fft.rfft(_random(d, 4, 64)),
    ),
    Fault(
        "places in the other convention",
        "grid_sampler_2d",
        computed(lambda x, grid, a, b, align: torch.grid_sampler_2d(x, grid, a, b, not align)),
        lambda d: torch.nn.functional.grid_sample(
            _random(d, 1, 2, 5, 5), _random(d, 1, 4, 4, 2).tanh(), align_corners=False
        ),
    ),
    Fault(
        "an exponential of a matrix with few terms",
        "linalg_matrix_exp",
        computed(lambda x: torch.eye(len(x)) + x + x @ x / 2 + x @ x @ x / 6),
        lambda d: torch.linalg.matrix_exp(_random(d, 5, 5)),
    ),
]
