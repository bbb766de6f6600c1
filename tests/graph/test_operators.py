# SPDX-License-Identifier: Apache-2.0
"""Every operator of OpInfo alone as a graph: recorded, replayed, and equal to eager bit for bit.

Traced by make_fx, without Dynamo, so that an operator takes milliseconds. `make test` takes one in
eight; OPENNPU_TEST_FULL=1 all of them, and integers and halves too.
"""

import os
import warnings

import pytest
import torch
import torchair
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
DTYPES = (torch.float32, torch.int64, torch.bfloat16) if FULL else (torch.float32,)
GROUPS = 16
# Results hold uninitialised memory, or cannot be traced on their own.
SKIP = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "tensor_split", "to_sparse",
}  # fmt: skip


def traced(op, sample, dtype):
    """(graph, its inputs, the function it was made of); None when it cannot be traced alone."""
    whole = (sample.input, sample.args, sample.kwargs)
    flat, tree = tree_flatten(tree_map(_moved, whole))
    tensors = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor)]

    def function(*given):
        values = list(flat)
        for i, tensor in zip(tensors, given):
            values[i] = tensor
        first, args, kwargs = tree_unflatten(values, tree)
        return tree_flatten(op.op(first, *args, **kwargs))[0]

    inputs = [flat[i] for i in tensors]
    if not inputs or any(t.layout != torch.strided for t in inputs):
        return None
    try:
        return make_fx(function)(*inputs), inputs, function
    except Exception:
        return None


def _moved(value):
    return value.to("npu") if isinstance(value, torch.Tensor) else value


# These differ from eager every time. Presumably PyTorch traces them with the vectors that only a gradient
# would need, and LAPACK computes values without vectors by another algorithm: not proven.
TRACED_WITH_VECTORS = {"linalg.cond", "linalg.eigvalsh", "linalg.svdvals"}
# A least squares problem without a unique solution: eager mode differs from itself.
NOT_UNIQUE = {"linalg.lstsq"}


def close(a, b) -> bool:
    return not isinstance(a, torch.Tensor) or torch.allclose(
        a.cpu(), b.cpu(), rtol=1e-5, atol=1e-6, equal_nan=True
    )


def equal(a, b) -> bool:
    if not isinstance(a, torch.Tensor):
        return a == b or (a != a and b != b)
    if a.layout != torch.strided or a.is_conj() or a.is_neg():
        a, b = (t.resolve_conj().resolve_neg().to_dense() for t in (a, b))
    if a.dtype == torch.complex32:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    same = a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
    return same and torch.equal(torch.nan_to_num(a.cpu()), torch.nan_to_num(b.cpu()))


def check(op, dtype) -> int:
    """Compares three runs with the traced operators called one by one, bit for bit, and with the
    operator itself; the number of graphs seen."""
    seen = 0
    for sample in list(op.sample_inputs("cpu", dtype))[: 4 if FULL else 2]:
        found = traced(op, sample, dtype)
        if found is None:
            continue
        module, inputs, function = found
        run = torchair.get_compiler()(module, inputs)
        for turn in range(3):
            given = [t.detach().clone() for t in inputs]
            same, again = ([t.detach().clone() for t in inputs] for _ in range(2))
            torch.manual_seed(42)  # what some of OpInfo's functions seed themselves with
            wanted = function(*same)
            torch.manual_seed(42)
            by_one = tree_flatten(module(*again))[0]
            torch.manual_seed(42)
            got = tree_flatten(run(list(given)))[0]
            what = f"{op.name} {op.variant_test_name} {dtype} {turn}"
            alike = close if op.name in TRACED_WITH_VECTORS else equal
            if op.name not in NOT_UNIQUE:
                assert all(map(equal, got, by_one)), what
                assert all(map(alike, got, wanted)), what
            assert all(map(equal, given, same)), f"{op.name}: inputs differ"
        seen += 1
    return seen


@pytest.mark.parametrize("group", range(GROUPS if FULL else 4))
def test_operators(group):
    step = GROUPS if FULL else 4 * 8
    operators = [op for op in op_db[group::step] if op.name not in SKIP]
    seen = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for op in operators:
            for dtype in DTYPES:
                if dtype in op.supported_dtypes("cpu"):
                    seen += check(op, dtype)
    assert seen > len(operators) // 2
