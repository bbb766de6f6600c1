# SPDX-License-Identifier: Apache-2.0
"""PyTorch's OpInfo samples, run on the CPU and on npu:0, and the two answers compared.

New here? A mode is a function in MODES that turns (operator, sample) into Questions: arguments
and what to do with them. `ask` puts a Question to both devices: the same bits, or, where one of
the driver's own kernels ran, a verdict of at most 1 (verdict.py). What ops/wide.yaml lists the CPU
side computes in the wider dtype (wide_reference.py).
"""

import contextlib
import dataclasses
import itertools
import random
import warnings
import zlib
from collections.abc import Callable

import compare
import torch
import verdict
from compare import DEVICE, Mismatch, tensors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from wide_reference import LISTED, WideReference

# Their result is uninitialised memory: everything but the values is compared.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}

# LAPACK's gelsy answers by where its memory happens to lie: always judged by verdict.
BY_CHANCE = {"linalg.lstsq"}

# PyTorch's CPU writes one NaN where it converts a vector of elements and another where it converts
# the last few: every other bit is compared, a NaN has to be a NaN.
ANY_NAN = {"bfloat16", "float"}

# They grow into uninitialised memory.
GROWS = {"resize_", "resize_as_"}

# Their arguments have to be on the CPU, on every device.
HOST_ARGUMENTS = {"tensor_split"}

# Results whose dtype and strides follow the fake kernel of an accelerator where PyTorch's CPU has its own:
# fake_results.py judges these facts.
AS_FAKE = {
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "native_batch_norm",
    "native_layer_norm",
    "nn.functional.max_unpool2d",
    "nn.functional.scaled_dot_product_attention",
    "nonzero_static",
}

# How often the CPU is asked again, and so many of a long list of samples are looked at.
TRIES, WINDOW = 32, 48


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


# ---- moving arguments ----


def with_layout_of(plain, memory):
    return memory.as_strided(plain.shape, plain.stride(), plain.storage_offset())


def whole_memory(plain):
    return torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())


def aligned_copy(memory, like):
    """A copy of 1-d `memory` whose address has the last 6 bits of `like`'s."""
    bytes_ = memory.numel() * memory.element_size()
    room = torch.empty(bytes_ + 128, dtype=torch.uint8)
    start = (like.data_ptr() - room.data_ptr()) % 64
    return room[start : start + bytes_].view(memory.dtype).copy_(memory)


def copy_to(device, tensor, like=None):
    """A copy with the same strides, bits and requires_grad; at an address like `like`'s."""
    if tensor.layout != torch.strided:
        copy = tensor.detach().to(device, copy=True)
    else:
        conj, neg = tensor.is_conj(), tensor.is_neg()
        plain = tensor.detach()
        plain = plain.conj() if conj else plain
        plain = torch._neg_view(plain) if neg else plain
        memory = whole_memory(plain)
        if like is not None and memory.numel():
            whole = whole_memory(plain)
            memory = aligned_copy(whole, like.untyped_storage())
            offset = plain.storage_offset() + memory.storage_offset()
            copy = memory.as_strided(plain.shape, plain.stride(), offset)
        else:
            copy = with_layout_of(plain, memory.to(device, copy=True))
        copy = torch._neg_view(copy) if neg else copy
        copy = copy.conj() if conj else copy
    return copy.requires_grad_(tensor.requires_grad)


class Mover:
    """Moves a tree of arguments; the same tensor stays one tensor."""

    def __init__(self, device=DEVICE, places=None):
        self.device, self.moved, self.places = device, {}, places or {}

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.moved:
                like = self.places.get(id(value))
                self.moved[id(value)] = (value, copy_to(self.device, value, like))
            return self.moved[id(value)][1]
        if isinstance(value, torch.device) or value == "cpu":
            return torch.device(self.device)
        return value

    def places_taken(self):
        return {key: copy for key, (_, copy) in self.moved.items()}


def on_device(value):
    device = value.device if isinstance(value, torch.Tensor) else value
    return isinstance(device, torch.device) and device.type == "npu"


# ---- questions ----


@dataclasses.dataclass
class Question:
    """run(arguments, device) on both sides; exact(arguments) is the same in float64."""

    what: str
    arguments: tuple  # input, args, kwargs
    run: Callable
    exact: Callable
    traced: bool = True
    # Forward, then backward: a half type is rounded to between them.
    chain: bool = False


def question(op, sample, what, run, exact=None, traced=True, chain=False):
    arguments = (sample.input, sample.args, sample.kwargs)

    def plain(tree, positive=False):
        return run(tree, "cpu", positive)

    return Question(what, arguments, run, exact or plain, traced, chain)


def call(op, tree):
    value, args, kwargs = tree
    return op(value, *args, **kwargs)


def ask_forward(op, sample, what):
    yield question(op, sample, what, lambda tree, device, positive=False: call(op, tree))


def ask_noncontiguous(op, sample, what):
    arguments = (sample.input, sample.args, sample.kwargs)
    if all(t.layout == torch.strided for t in tensors(arguments)):
        yield from ask_forward(op, sample.noncontiguous(), what)


def ask_empty(op, sample, what):
    """The sample without rows, and without columns."""
    first = next(iter(tensors(sample.input)), None)
    if first is None or first.dim() == 0 or first.layout != torch.strided or op.name in GROWS:
        return
    for dim in (0, -1):
        size = first.shape[dim]

        def cut(value, dim=dim, size=size):
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                return value
            return value.narrow(dim, 0, 0) if value.shape[dim] == size else value

        if size and (dim == 0 or first.dim() > 1):
            yield from ask_forward(op, sample.transform(cut), f"{what} without dim {dim}")


def seed_like(tensor, positive):
    """Numbers that every dtype holds exactly, and no random ones."""
    numbers = torch.arange(tensor.numel()).mul(3).remainder(16).sub(8).div(8)
    numbers = numbers.abs() if positive else numbers
    return numbers.reshape(tensor.shape).to(tensor.dtype)


def ask_gradient(op, sample, what):
    after = sample.output_process_fn_grad

    def run(tree, device, positive=False):
        results = [t for t in tensors(after(call(op, tree))) if t.requires_grad]
        leaves = [t for t in tensors(tree) if t.requires_grad]
        if not results or not leaves:
            return []
        seeds = [seed_like(t, positive).to(device) for t in results]
        found = torch.autograd.grad(results, leaves, seeds, allow_unused=True)
        return [g for g in found if g is not None]

    yield question(op, sample, what, run, traced=False, chain=True)


def ask_inplace(op, sample, what):
    if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
        return

    def run(tree, device, positive=False):
        return call(op.inplace_variant, tree)

    yield question(op, sample, what, run)


def out_tensors(result, how, device):
    def make(t):
        if how == "empty":
            return torch.empty(0, dtype=t.dtype, device=device)
        if how == "exact":
            return torch.full(t.shape, 1, dtype=t.dtype, device=device)
        return torch.full((*t.shape, 2), 1, dtype=t.dtype, device=device)[..., 0]

    return tree_map(lambda t: make(t) if isinstance(t, torch.Tensor) else t, result)


def ask_out(op, sample, what):
    try:
        plain = op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return  # forward compares errors
    flat = tree_flatten(plain)[0]
    if not flat or not all(isinstance(t, torch.Tensor) for t in flat):
        return
    for how in ("empty", "exact", "strided"):

        def run(tree, device, positive=False, how=how):
            out = out_tensors(plain, how, device)
            value, args, kwargs = tree
            return op(value, *args, **kwargs, out=out), out

        def exact(tree, positive=False):
            result = call(op, tree)
            return result, result

        yield question(op, sample, f"{what} out={how}", run, exact)


MODES = {
    "forward": ask_forward,
    "reference": ask_forward,
    "noncontiguous": ask_noncontiguous,
    "empty": ask_empty,
    "gradient": ask_gradient,
    "inplace": ask_inplace,
    "out": ask_out,
    "errors": ask_forward,
}


def applies(op, mode, dtype):
    if mode == "errors":
        return op.error_inputs_func is not None and dtype == torch.float32
    if dtype not in op.supported_dtypes("cpu"):
        return False
    if mode == "reference":
        # Where there are none of its own, these are the samples again.
        return op.reference_inputs_func is not None
    if mode == "gradient":
        return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    if mode == "inplace":
        return op.inplace_variant is not None
    return op.supports_out if mode == "out" else True


# ---- both sides ----


def computed():
    """Calls of the driver's own kernels, but for those that only move values."""
    from torch_npu import _C

    return {
        name: [row for row in rows if row["kind"] not in ("copy", "fill")]
        for name, rows in _C._native_calls().items()
    }


def ran_natively(question):
    """Whether one of the driver's own kernels takes part in the answer."""
    before = computed()
    answer(question, Mover())
    after = computed()
    return any(rows and rows != before.get(name) for name, rows in after.items())


class SameFormulas(TorchDispatchMode):
    """Does nothing. Under any mode PyTorch takes other formulas for some gradients, so both sides have one."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def answer(question, mover):
    """(what came back, what it did to the arguments) on one device."""
    tree = tree_map(mover, question.arguments)
    trace = compare.Trace(tree)
    # Not for masks and indices beside other tensors.
    dtypes = {t.dtype for t in tensors(tree)}
    numbers = {d for d in dtypes if d.is_floating_point or d.is_complex} or dtypes
    mode = contextlib.nullcontext()
    if numbers & LISTED:
        mode = WideReference() if mover.device == "cpu" else SameFormulas()
    with mode:
        results = trace.finish(question.run(tree, mover.device))
    return (results, trace.changed(results)), trace


def ask(op, question):
    """How a Question was settled: same, verdict, second rule, chance, random, error, or None."""
    here = Mover()
    if op.name in HOST_ARGUMENTS:
        here.moved = {id(t): (t, t) for t in tensors(question.arguments[1:])}
    if not any(on_device(here(v)) for v in tree_flatten(question.arguments)[0]):
        return None  # a factory that was not told where
    try:
        expected, trace = answer(question, Mover("cpu"))
    except Exception as error:
        return both_fail(question, here, error)
    got, found = answer(question, here)
    if op.name in AS_FAKE:
        got = compare.with_layout_of(expected, got)
    compare.check_facts(expected, got, question.what)
    if question.traced:
        trace.check(found, question.what)
    if op.name in ANY_NAN:
        expected, got = compare.with_one_nan(expected), compare.with_one_nan(got)
    if op.name in UNINITIALISED or not compare.different(expected, got):
        return "same"
    with Draws() as draws:
        answer(question, Mover("cpu"))
    if draws.found:
        return "random"
    if op.name in BY_CHANCE or ran_natively(question):
        return by_verdict(op, question, expected, got)
    return by_asking_again(question, here, got)


def both_fail(question, here, error):
    try:
        answer(question, here)
    except Exception as own:
        if type(own) is not type(error):
            raise Mismatch(
                f"{question.what}: {type(own).__name__} here, "
                f"{type(error).__name__} on the CPU: {first_line(own)}"
            ) from own
        return "error"
    raise Mismatch(
        f"{question.what}: the CPU raises {type(error).__name__}, here nothing"
    ) from error


def by_verdict(op, question, expected, got):
    expected, got = tensors(expected), [t.cpu() for t in tensors(got)]
    for i in compare.different(expected, got):
        if expected[i].dtype not in verdict.ROUNDOFF or expected[i].layout != torch.strided:
            raise Mismatch(f"{question.what}: result {i} differs, and it is exact")

    def run(tree, positive=False):
        return tensors(question.exact(tree, positive))

    worst, theirs = verdict.judge(op, run, question.arguments, expected, got)
    if worst <= (2 if question.chain and expected[0].dtype in verdict.HALF else 1):
        return "verdict"
    if worst <= 2 * theirs and theirs > 1:
        return "second rule"
    raise Mismatch(f"{question.what}: E = {worst:.3g}, the CPU's own {theirs:.3g}")


def by_asking_again(question, here, got):
    """Some CPU kernels answer by where their memory lies, or read past it: one of its answers has
    to be this one, or all it is sure of, which has to be nearly everything."""
    held, answers = [], []
    for i in range(TRIES):
        held.append(torch.full((1 + 7 * i,), float("nan")))
        answers.append(answer(question, Mover("cpu", here.places_taken()))[0])
        if not compare.different(answers[-1], got):
            return "chance"
    for i in compare.different(answers[0], got):
        every = [compare.raw_elements(tree_flatten(a)[0][i]) for a in answers]
        mine = compare.raw_elements(tree_flatten(got)[0][i])
        sure = torch.stack([(e == every[0]).all(-1) for e in every]).all(0)
        equal = (mine == every[0]).all(-1)
        if not equal[sure].all() or sure.double().mean() < 0.99:
            raise Mismatch(f"{question.what}: result {i} differs")
    return "chance"


def first_line(error):
    return str(error).splitlines()[0] if str(error) else ""


# ---- one operator ----


def samples_of(op, mode, dtype):
    """The database's generators themselves: OpInfo's methods walk the stack for every sample."""
    seed = zlib.crc32(f"{op.name} {op.variant_test_name} {dtype}".encode())
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if mode == "errors":
        return (error.sample_input for error in op.error_inputs_func(op, "cpu"))
    make = op.reference_inputs_func if mode == "reference" else op.sample_inputs_func
    return iter(make(op, "cpu", dtype, mode == "gradient"))


def chosen_samples(op, mode, dtype, most):
    """(number, sample): all, or `most` spread over the first WINDOW, others for each dtype."""
    samples = samples_of(op, mode, dtype)
    if not most:
        return enumerate(samples)
    first = list(itertools.islice(samples, WINDOW))
    step = max(1, len(first) // most)
    phase = zlib.crc32(f"{dtype} {mode}".encode()) % step
    return [(i, first[i]) for i in range(phase, len(first), step)][:most]


def run_operator(op, mode, dtype, most):
    """How its samples were settled, and the first failure."""
    row = {"compared": 0, "failure": None}
    grad = contextlib.nullcontext() if mode == "gradient" else torch.no_grad()
    with grad, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, sample in chosen_samples(op, mode, dtype, most):
            what = f"sample {i}"
            try:
                settled = [ask(op, q) for q in MODES[mode](op, sample, what)]
            except Mismatch as error:
                return {**row, "failure": str(error)}
            except Exception as error:
                text = f"{what}: {type(error).__name__}: {first_line(error)}"
                return {**row, "failure": text}
            for how in settled or [None]:
                row["compared"] += how not in (None, "random")
                row[str(how or "nothing")] = row.get(str(how or "nothing"), 0) + 1
    return row
