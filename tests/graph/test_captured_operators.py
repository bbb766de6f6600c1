# SPDX-License-Identifier: Apache-2.0
"""Every operator of OpInfo captured by torch.npu.graph: nothing happens while it is captured, and
three replays give what three calls in eager mode give, with the generator's state after each.

`make test` takes a sample; OPENNPU_TEST_FULL=1 all operators.
"""

import os

import pytest
import torch
from test_compiled_operators import LEFT_OUT, samples
from test_operators import NOT_UNIQUE
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
GROUPS = 16 if FULL else 2
STEP = GROUPS if FULL else 40
TYPES = (torch.float32, torch.complex64)
# While a dispatch mode is active, PyTorch computes vectors too, by another function of LAPACK.
VECTORS_TOO = {
    ("linalg.eigvalsh", ""),
    ("linalg.svdvals", ""),
    ("linalg.cond", ""),
    ("norm", "nuc"),
}
NEARLY = "nearly"
REFUSED = "not permitted while a stream is captured"


def tensors(value):
    return [v for v in tree_flatten(value)[0] if isinstance(v, torch.Tensor)]


def clone(tensor):
    """With the conjugate bit, which clone() resolves."""
    return tensor.conj().clone().conj() if tensor.is_conj() else tensor.clone()


def copied(tree):
    return tree_map(lambda v: clone(v) if isinstance(v, torch.Tensor) else v, tree)


def state():
    return torch.npu.get_rng_state().tolist()


def plain(tensor):
    """Without NaN, which equals nothing; complex halves have no such function."""
    host = tensor.cpu()
    wide = host.to(torch.complex64) if host.dtype == torch.complex32 else host
    return wide.nan_to_num(7)


def same(got, wanted, exact=True) -> bool:
    got, wanted = tensors(got), tensors(wanted)
    if len(got) != len(wanted):
        return False
    for a, b in zip(got, wanted):
        if a.shape != b.shape or a.dtype != b.dtype or a.is_conj() != b.is_conj():
            return False
        if exact is True and not torch.equal(plain(a), plain(b)):
            return False
        if exact is NEARLY and not torch.allclose(plain(a), plain(b), rtol=1e-4, atol=1e-5):
            return False
    return True


def eager(op, sample):
    """[(results, arguments, state)] of three calls that follow each other."""
    input, args, kwargs = sample = copied(sample)
    torch.npu.manual_seed(11)
    seen = []
    for _ in range(3):
        out = op(input, *args, **kwargs)
        seen.append((copied(tensors(out)), copied(tensors(sample)), state()))
    return seen


def wrong(op, sample) -> str:
    """What differs; empty when nothing does, or when the capture is refused."""
    exact = op.name not in NOT_UNIQUE
    if (op.name, op.variant_test_name) in VECTORS_TOO:
        exact = NEARLY
    try:
        wanted = eager(op, sample)
    except Exception:
        return ""  # the sample is no call
    input, args, kwargs = captured = copied(sample)
    graph = torch.npu.NPUGraph()
    torch.npu.manual_seed(11)
    before = state()
    try:
        with torch.npu.graph(graph):
            out = op(input, *args, **kwargs)
    except RuntimeError as error:
        refused = str(error)
        return "" if REFUSED in refused else f"capture: {refused[:200]}"
    if state() != before or not same(captured, sample):
        return "the capture itself changed its arguments or the generator"
    for n, (results, arguments, after) in enumerate(wanted):
        graph.replay()
        torch.npu.synchronize()
        if not same(out, results, exact):
            return f"results of replay {n + 1}"
        if not same(captured, arguments, exact):
            return f"arguments after replay {n + 1}"
        if state() != after:
            return f"the generator after replay {n + 1}"
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", range(GROUPS))
def test_replays_are_eager_calls(group):
    found = []
    for op in op_db[group::STEP]:
        if op.name in LEFT_OUT:
            continue
        for dtype in TYPES:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for sample in samples(op, dtype)[: None if FULL else 2]:
                if what := wrong(op, sample):
                    found.append(f"{op.name}.{op.variant_test_name} {dtype}: {what}")
                    break
    assert not found, "\n".join(found)
