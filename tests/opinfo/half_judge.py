# SPDX-License-Identifier: Apache-2.0
"""How far the halves of every operator called are from float64, in units in the last place."""

import collections
import itertools
import random

import torch
from accelerator import full_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

BITS = {torch.float16: 10, torch.bfloat16: 7}
TINY = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
# Beyond it the wide result may be finite where the narrow one is not.
LARGE = {torch.float16: 3e4, torch.bfloat16: 1e38}
# More than 2 from one rounding, which is half a unit itself, where float32 is at most one off.
LIMIT, REACHED = 2.5, 1.01
# They move values, make memory or draw.
PLAIN = ("empty", "copy", "clone", "detach", "view", "as_strided", "dropout", "bernoulli", "rand")


def ulps(got: torch.Tensor, exact: torch.Tensor, dtype) -> torch.Tensor:
    exact, got = exact.cpu().double(), got.cpu().double()
    known = exact.isfinite() & (exact.abs() < LARGE[dtype])
    exact, got = exact[known], got[known]
    exponent = torch.frexp(exact)[1].double() - 1 - BITS[dtype]
    unit = torch.exp2(exponent).clamp(min=TINY[dtype])
    return ((got - exact).abs() / unit).nan_to_num(1e9, 1e9)


def cast(tree, dtype, to):
    """Copies of all tensors, the halves in another dtype."""

    def one(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(to) if value.dtype == dtype else value.clone()

    return tree_map(one, tree)


class Judge(TorchDispatchMode):
    """Notes in `found` (operator, dtype): [elements too far off, the worst, OpInfo's names]."""

    def __init__(self, dtype, found, name=""):
        super().__init__()
        self.dtype, self.found, self.name = dtype, found, name

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        bare = func._schema.name.partition("::")[2]
        judged = (
            any(t.dtype == self.dtype for t in given)
            and all(t.layout == torch.strided for t in given)
            and not func.is_view
            and torch.Tag.nondeterministic_seeded not in func.tags
            and not any(word in bare for word in PLAIN)
        )
        wide = []
        for to in (torch.float64, torch.float32) if judged else ():
            try:
                a, k = cast((args, kwargs), self.dtype, to)
                wide.append(
                    [t.clone() for t in tree_leaves(func(*a, **k)) if isinstance(t, torch.Tensor)]
                )
            except Exception:
                break  # a dtype that only halves may be combined with
        result = func(*args, **kwargs)
        if len(wide) == 2:
            narrow = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
            self.compare(bare, narrow, *wide)
        return result

    def compare(self, bare, narrow, exact, single):
        for got, want, by_float in zip(narrow, exact, single):
            if got.dtype != self.dtype or want.dtype != torch.float64 or got.shape != want.shape:
                continue
            off = ulps(got, want, self.dtype)
            bad = (off > LIMIT) & (ulps(by_float.to(self.dtype), want, self.dtype) <= REACHED)
            if bad.any():
                row = self.found[bare, str(self.dtype)[6:]]
                row[0] += int(bad.sum())
                row[1] = max(row[1], float(off[bad].max()))
                row[2].add(self.name)


def new_findings():
    return collections.defaultdict(lambda: [0, 0.0, set()])


def judge_operator(op, dtype, device, samples: int, found) -> None:
    """Forward and backward of an OpInfo's first samples."""
    torch.manual_seed(0)
    random.seed(0)
    grads = op.supports_autograd and dtype in op.backward_dtypes
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grads), samples):

        def move(value):
            if isinstance(value, torch.Tensor):
                return value.detach().to(device).requires_grad_(value.requires_grad)
            return torch.device(device) if isinstance(value, torch.device) else value

        first, args, kwargs = tree_map(move, (sample.input, sample.args, sample.kwargs))
        with Judge(dtype, found, full_name(op)):
            results = [
                t for t in tree_leaves(op(first, *args, **kwargs))
                if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()
            ]  # fmt: skip
            leaves = [
                t for t in tree_leaves((first, args, kwargs))
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]  # fmt: skip
            if results and leaves:
                seeds = [torch.linspace(-1, 1, t.numel()).view(t.shape).to(t) for t in results]
                torch.autograd.grad(results, leaves, seeds, allow_unused=True)
