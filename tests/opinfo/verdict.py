# SPDX-License-Identifier: Apache-2.0
"""How far a result is from the truth, in units of what rounding allows: E, which has to be <= 1.

    E = |got - ref| / (2 u_out |ref| + u_acc (8 M + 1.5 sqrt(K) |ref|))

ref is the CPU's float64 answer to the same inputs; u are unit roundoffs of the output's dtype and
of the accumulator; K is the length of the reduction; M (the majorant) says how much the terms
were larger than their sum: the operator applied to absolute values where it is linear in every
argument, else what the answer moves when every input, and every result on the way, is moved by one
roundoff.
"""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HALF = (torch.float16, torch.bfloat16, torch.complex32)
ROUNDOFF = {
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
    torch.complex32: 2.0**-11,
    torch.float32: 2.0**-24,
    torch.complex64: 2.0**-24,
    torch.float64: 2.0**-53,
    torch.complex128: 2.0**-53,
}
TINY = {
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
    torch.complex32: 2.0**-24,
    torch.float32: 2.0**-149,
    torch.complex64: 2.0**-149,
    torch.float64: 2.0**-1074,
    torch.complex128: 2.0**-1074,
}
WIDE = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}

# Linear in each of their arguments: the majorant is the operator on absolute values.
LINEAR = {
    "__rmatmul__",
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "cumsum",
    "dot",
    "einsum",
    "inner",
    "kron",
    "linalg.multi_dot",
    "linalg.vecdot",
    "masked.mean",
    "masked.sum",
    "matmul",
    "mean",
    "mm",
    "mv",
    "nanmean",
    "nansum",
    "nn.functional.bilinear",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "nn.functional.linear",
    "outer",
    "sum",
    "tensordot",
    "trapezoid",
    "trapz",
    "vdot",
}
# Cancel inside (1 + erf), so the majorant is the input itself.
BY_INPUT = {"nn.functional.gelu", "nn.functional.silu", "nn.functional.mish"}


def accumulates_in(dtype):
    return 2.0**-53 if dtype in (torch.float64, torch.complex128) else 2.0**-24


def is_number(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def widened(change=None, integers=False):
    """A map over arguments: floating numbers become float64, then `change` is applied."""

    def widen(value):
        if isinstance(value, torch.dtype):
            return WIDE.get(value, value)
        if not isinstance(value, torch.Tensor) or not (is_number(value) or integers):
            return value
        dtype = value.dtype if is_number(value) else torch.float64
        wide = value.detach().to(WIDE.get(dtype, dtype), copy=True)
        if change:
            wide = change(wide)
        return wide.requires_grad_(value.requires_grad)

    return widen


def moved_by(roundoff, seed):
    """Arguments against each other, neighbours against each other, together, then at random."""
    generator = torch.Generator().manual_seed(seed)
    place = 0

    def change(wide):
        nonlocal place
        place += 1
        if seed == 0:
            signs = torch.full(wide.shape, place % 2)
        elif seed == 1:
            signs = torch.arange(wide.numel()).remainder(2).reshape(wide.shape)
        elif seed == 2:
            signs = torch.ones(wide.shape)
        else:
            signs = torch.randint(0, 2, wide.shape, generator=generator)
        factor = 1 + roundoff * (2 * signs.double() - 1)
        if not wide.is_complex():
            return wide * factor
        # By parts: as a complex number the factor would make NaN of infinities.
        parts = torch.view_as_real(wide.resolve_conj().resolve_neg())
        return torch.view_as_complex(parts * factor.unsqueeze(-1))

    return change


def is_mask(tensor):
    """Zeros and ones: said, not computed."""
    return bool(((tensor == 0) | (tensor == 1)).all())


def magnitude(tensor):
    """Absolute values; of both parts of a complex number, which stays one."""
    if tensor.is_complex():
        return torch.complex(tensor.real.abs(), tensor.imag.abs())
    return tensor.abs()


def positive_number(value):
    if isinstance(value, complex):
        return complex(abs(value.real), abs(value.imag))
    return abs(value) if isinstance(value, float) else value


# Inputs are moved by a little more than float64's roundoff, which its arithmetic would swallow.
LEAST_MOVE = 2.0**-40


class Shaken(TorchDispatchMode):
    """Moves every new result too: a chain of operators rounds between them."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if any(r.alias_info for r in func._schema.returns):
            return result
        return tree_map(lambda t: self.change(t) if self.rounded(t) else t, result)

    @staticmethod
    def rounded(value):
        return isinstance(value, torch.Tensor) and is_number(value) and not is_mask(value)


def majorant(op, run, tree, reference, roundoff, integers):
    """M for every result."""
    if op.name in LINEAR:
        arguments = tree_map(positive_number, tree_map(widened(magnitude, integers), tree))
        positive = run(arguments, positive=True)
        return [r.abs() for r in positive]
    found = [torch.zeros(r.shape, dtype=torch.float64) for r in reference]
    if op.name in BY_INPUT and len(found) == 1:
        return [tree[0].detach().abs().double().expand_as(found[0])]
    step = max(roundoff, LEAST_MOVE)
    for seed in range(7):
        arguments = tree_map(widened(moved_by(step, seed), integers), tree)
        with Shaken(moved_by(step, seed)):
            other = run(arguments)
        for total, r, o in zip(found, reference, other):
            if is_number(r):
                move = (o - r).abs().double() / step
                torch.maximum(total, torch.nan_to_num(move, nan=0.0, posinf=0.0), out=total)
    return found


def stored_inside(tree, dtype):
    """How much more than an accumulator's roundoff the majorant stands for.

    max_norm shortens the rows of the table in place, so they are rounded to the table's own dtype
    before anything is summed; twice that roundoff, as for a result.
    """
    if isinstance(tree[-1], dict) and tree[-1].get("max_norm") is not None:
        return 1 + ROUNDOFF[dtype] / accumulates_in(dtype) / 4
    return 1


def elementwise(op):
    return type(op).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo")


def length(op, tree, result):
    """K: how many terms went into one element."""
    inputs = [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
    if "polynomial" in op.name:
        return max(1, int(inputs[-1].double().nan_to_num().abs().max()))  # steps of a recurrence
    if elementwise(op):
        return 1
    if type(op).__name__ == "ReductionOpInfo" and inputs:
        return max(1, inputs[0].numel() // max(1, result.numel()))
    return max([1] + [size for t in inputs for size in t.shape])


def errors(got, reference, bound, dtype, terms):
    """E of every element. Not finite: right when the reference, rounded, is the same."""
    got, reference = got.to(reference.dtype), reference
    u_out, u_acc = ROUNDOFF[dtype], accumulates_in(dtype)
    size = reference.abs()
    allowed = 2 * u_out * size + u_acc * (8 * bound + 1.5 * math.sqrt(terms) * size)
    found = (got - reference).abs() / allowed.clamp_min(TINY[dtype])
    rounded = reference.to(dtype).to(reference.dtype)
    odd = ~(torch.isfinite(got) & torch.isfinite(rounded))
    same = (got == rounded) | (torch.isnan(got) & torch.isnan(rounded))
    found = torch.where(odd, torch.where(same, 0.0, math.inf), found)
    return torch.nan_to_num(found, nan=math.inf, posinf=math.inf)


def equal_values(a, b):
    return (a == b) | (torch.isnan(a) & torch.isnan(b))


def judge(op, run, tree, expected, got):
    """(worst E of got, worst E of the CPU's own answer); raises when there is no reference.

    run(tree) gives the floating results as a list; expected and got are such lists. Elements
    that are the CPU's own are right.
    """
    # Integers that become floating point: elementwise, they may do so before.
    integers = elementwise(op)
    with torch.no_grad() if not any_grad(tree) else torch.enable_grad():
        reference = [r.detach() for r in run(tree_map(widened(integers=integers), tree))]
        dtype = min((e.dtype for e in expected if e.dtype in ROUNDOFF), key=wideness)
        moved = majorant(op, run, tree, reference, accumulates_in(dtype), integers)
        bounds = [m.detach() * stored_inside(tree, dtype) for m in moved]
    worst = theirs = 0.0
    for e, g, r, m in zip(expected, got, reference, bounds):
        if e.dtype not in ROUNDOFF or not e.numel():
            continue
        if r.shape != e.shape:
            raise ValueError("the float64 run gives other sizes")
        terms = length(op, tree, e)
        mine = errors(g, r, m, e.dtype, terms)
        if accumulates_in(e.dtype) < 2.0**-24:
            mine = mine / 2  # the reference has no more digits: its own rounding counts too
        mine = torch.where(equal_values(e, g), 0.0, mine)
        worst = max(worst, mine.max().item())
        theirs = max(theirs, errors(e, r, m, e.dtype, terms).max().item())
    return worst, theirs


def wideness(dtype):
    return -ROUNDOFF[dtype]


def any_grad(tree):
    leaves = torch.utils._pytree.tree_leaves(tree)
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in leaves)
