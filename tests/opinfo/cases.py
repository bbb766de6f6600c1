# SPDX-License-Identifier: Apache-2.0
"""PyTorch's OpInfo samples, run on the CPU and on npu:0, compared bit by bit."""

import contextlib
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.complex64)
MODES = ("forward", "gradient", "inplace", "out")
DEVICE = "npu:0"

# Their result is memory nobody has written.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}


# LAPACK's gelsy answers by where its memory happens to lie: the CPU differs from itself.
BY_CHANCE = {"linalg.lstsq"}

# Their arguments have to be on the CPU, on every device.
HOST_ARGUMENTS = {"tensor_split"}


class Draws(TorchDispatchMode):
    """Notices operators that draw random numbers."""

    def __init__(self):
        super().__init__()
        self.found = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded in func.tags:
            values = dict(zip((a.name for a in func._schema.arguments), args), **(kwargs or {}))
            attention = "_fused_sdp_choice" in str(func) or values.get("dropout_p") == 0.0
            self.found |= not attention
        return func(*args, **(kwargs or {}))


class Mismatch(Exception):
    """The npu device answered something else than the CPU."""


def copy_to(device, tensor):
    """A copy with the same strides, bits and requires_grad."""
    if tensor.layout != torch.strided:
        copy = tensor.detach().to(device, copy=True)
    else:
        conj, neg = tensor.is_conj(), tensor.is_neg()
        plain = tensor.detach()
        plain = plain.conj() if conj else plain
        plain = torch._neg_view(plain) if neg else plain
        memory = torch.empty(0, dtype=plain.dtype)
        memory.set_(plain.untyped_storage())
        memory = memory.to(device, copy=True)
        copy = memory.as_strided(plain.shape, plain.stride(), plain.storage_offset())
        copy = torch._neg_view(copy) if neg else copy
        copy = copy.conj() if conj else copy
    return copy.requires_grad_(tensor.requires_grad)


class Mover:
    """Moves a tree of arguments; the same tensor stays one tensor."""

    def __init__(self, device=DEVICE):
        self.device, self.moved = device, {}

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.moved:
                self.moved[id(value)] = (value, copy_to(self.device, value))
            return self.moved[id(value)][1]
        if isinstance(value, torch.device) or value == "cpu":
            return torch.device(self.device)
        return value

    def tree(self, value):
        return tree_map(self, value)


def on_device(value):
    device = value.device if isinstance(value, torch.Tensor) else value
    return isinstance(device, torch.device) and device.type == "npu"


def moved(op, sample, device=DEVICE):
    move = Mover(device)
    value = move.tree(sample.input)
    if op.name in HOST_ARGUMENTS:
        return value, sample.args, sample.kwargs
    return value, move.tree(sample.args), move.tree(sample.kwargs)


def same_bits(expected, got):
    if not isinstance(expected, torch.Tensor):
        return expected == got or (expected != expected and got != got)
    if expected.layout != torch.strided:
        return same_sparse(expected, got.cpu())
    return torch.equal(raw_bytes(expected), raw_bytes(got.cpu()))


def raw_bytes(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return flat.copy_(tensor.detach().reshape(-1)).view(torch.uint8)


def same_sparse(expected, got):
    if expected.layout == torch.sparse_coo:
        names = ("_indices", "_values")
    elif expected.layout in (torch.sparse_csr, torch.sparse_bsr):
        names = ("crow_indices", "col_indices", "values")
    else:
        names = ("ccol_indices", "row_indices", "values")
    pairs = ((getattr(expected, n)(), getattr(got, n)()) for n in names)
    return all(same_bits(e, g) for e, g in pairs)


def check(expected, got, what):
    expected, got = tree_flatten(expected)[0], tree_flatten(got)[0]
    if len(expected) != len(got):
        raise Mismatch(f"{what}: {len(expected)} results on the CPU, {len(got)} here")
    for i, (e, g) in enumerate(zip(expected, got)):
        if isinstance(e, torch.Tensor):
            if g.device.type != "npu":
                raise Mismatch(f"{what}: result {i} is on {g.device}")
            facts = [(t.dtype, tuple(t.shape), t.layout) for t in (e, g)]
            if facts[0] != facts[1]:
                raise Mismatch(f"{what}: result {i} is {facts[1]}, CPU's {facts[0]}")
            if e.layout == torch.strided and e.numel() and e.stride() != g.stride():
                raise Mismatch(f"{what}: result {i} strides {g.stride()}, CPU's {e.stride()}")
        if not same_bits(e, g):
            raise Mismatch(f"{what}: result {i} differs")


def repeatable(function):
    """The CPU's answer, or None when it depends on random numbers or on chance."""
    first = function()
    with Draws() as draws:
        second = function()
    flat = zip(tree_flatten(first)[0], tree_flatten(second)[0])
    return first if not draws.found and all(same_bits(a, b) for a, b in flat) else None


def run_pair(op, on_cpu, on_npu, what):
    """Both sides; returns False when there is nothing to compare."""
    try:
        expected = repeatable(on_cpu)
    except Exception as error:
        try:
            on_npu()
        except Exception:
            return True
        raise Mismatch(f"{what}: the CPU raises {type(error).__name__}, here nothing") from error
    if expected is None:
        return False
    compare = check_close if op.name in BY_CHANCE else check
    compare(expected, on_npu(), what)
    return True


def check_close(expected, got, what):
    for e, g in zip(tree_flatten(expected)[0], tree_flatten(got)[0]):
        try:
            torch.testing.assert_close(g.cpu(), e)
        except AssertionError as error:
            raise Mismatch(f"{what}: not even close: {error}") from error


def seed_like(tensor):
    """Any numbers will do, but no random ones: Draws would take the operator for random."""
    numbers = torch.arange(tensor.numel()).mul(0.37).remainder(2.0).sub(1.0)
    return numbers.reshape(tensor.shape).to(tensor.dtype)


def grads(call, tree, seed_on):
    result = call()
    outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    outputs = [t for t in outputs if t.requires_grad]
    leaves = [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor)]
    leaves = [t for t in leaves if t.requires_grad]
    if not outputs or not leaves:
        return []
    seeds = [seed_like(t).to(seed_on) for t in outputs]
    found = torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)
    return [g for g in found if g is not None]


def case_forward(op, sample, what):
    value, args, kwargs = moved(op, sample)
    if not any(on_device(v) for v in tree_flatten((value, args, kwargs))[0]):
        return False  # a factory that was not told where
    return run_pair(
        op,
        lambda: op(sample.input, *sample.args, **sample.kwargs),
        lambda: op(value, *args, **kwargs),
        what,
    )


def case_gradient(op, sample, what):
    # Leaves on both sides: some samples are views that autograd cannot reach.
    trees = moved(op, sample, "cpu"), moved(op, sample)

    def run(tree, device):
        value, args, kwargs = tree
        after = sample.output_process_fn_grad
        return grads(lambda: after(op(value, *args, **kwargs)), tree, device)

    return run_pair(op, lambda: run(trees[0], "cpu"), lambda: run(trees[1], DEVICE), what)


def case_inplace(op, sample, what):
    variant = op.inplace_variant
    if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
        return False

    def run(move):
        value = move(sample.input.detach().clone())
        return variant(value, *move_tree(move, sample.args), **move_tree(move, sample.kwargs))

    def move_tree(move, tree):
        return tree_map(move, tree)

    return run_pair(op, lambda: run(lambda v: v), lambda: run(Mover()), what)


def out_tensors(result, how, device):
    def make(t):
        if how == "empty":
            return torch.empty(0, dtype=t.dtype, device=device)
        if how == "exact":
            return torch.full(t.shape, 1, dtype=t.dtype, device=device)
        wide = torch.full((*t.shape, 2), 1, dtype=t.dtype, device=device)
        return wide[..., 0]

    return tree_map(lambda t: make(t) if isinstance(t, torch.Tensor) else t, result)


def case_out(op, sample, what):
    try:
        plain = op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return False
    flat = tree_flatten(plain)[0]
    if not flat or not all(isinstance(t, torch.Tensor) for t in flat):
        return False
    compared = False
    for how in ("empty", "exact", "strided"):
        value, args, kwargs = moved(op, sample)

        def on_cpu(how=how):
            out = out_tensors(plain, how, "cpu")
            return op(sample.input, *sample.args, **sample.kwargs, out=out), out

        def on_npu(how=how, value=value, args=args, kwargs=kwargs):
            out = out_tensors(plain, how, DEVICE)
            return op(value, *args, **kwargs, out=out), out

        compared |= run_pair(op, on_cpu, on_npu, f"{what} out={how}")
    return compared


CASES = {
    "forward": case_forward,
    "gradient": case_gradient,
    "inplace": case_inplace,
    "out": case_out,
}


def applies(op, mode, dtype):
    if dtype not in op.supported_dtypes("cpu"):
        return False
    if mode == "gradient":
        return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    if mode == "inplace":
        return op.inplace_variant is not None and dtype == torch.float32
    if mode == "out":
        return op.supports_out and dtype == torch.float32
    return True


def run_operator(op, mode, dtype, most):
    """(samples compared, samples that had nothing to compare, first failure)."""
    compared = skipped = 0
    wants_grad = mode == "gradient"
    samples = op.sample_inputs("cpu", dtype, requires_grad=wants_grad)
    for i, sample in enumerate(samples):
        if most and i >= most:
            break
        what = f"sample {i}"
        grad_off = contextlib.nullcontext() if wants_grad else torch.no_grad()
        try:
            with grad_off, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                done = CASES[mode](op, sample, what)
        except Mismatch as error:
            return compared, skipped, str(error)
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else ""
            return compared, skipped, f"{what}: {type(error).__name__}: {first}"
        compared += done
        skipped += not done
    return compared, skipped, None
