# SPDX-License-Identifier: Apache-2.0
"""torchair.ge.custom_op: an operator called by its Ascend name, inside a converter.

The name is looked up among the operators of this process: "AddCustom" is `add_custom` of any
library a program loaded, of torch.ops.npu, and of ATen.
"""

import re

import torch

from torchair.ge.attr import Attr

_LAST = ("npu", "aten")  # programs' own libraries come first
# PyTorch's other libraries hold no custom operators.
_PYTORCH = {
    "prims", "prim", "quantized", "_quantized", "mkldnn", "mkldnn_prepacked", "mkl", "onednn",
    "sparse", "inductor", "rngprims", "debugprims", "c10d", "_c10d_functional",
    "_c10d_functional_autograd", "c10d_functional", "symm_mem", "streams", "profiler", "torchair",
    "quantized_decomposed", "static_runtime", "_test", "backend_test", "xnnpack", "metal",
}  # fmt: skip


def custom_op(op_type: str, *args, inputs=None, outputs=None, attrs=None, node_name=None):
    """Positional arguments, or `inputs` and `attrs` by name. `outputs` names the results; (name, n)
    is a list of n of them. `node_name` names a node of Ascend's graph, and does nothing here."""
    if not isinstance(op_type, str) or not re.fullmatch(r"[A-Za-z]\w*", op_type):
        raise ValueError(f"custom_op: op_type: expected a name, but got {op_type!r}")
    if args and (inputs or attrs):
        raise ValueError("custom_op: pass arguments by position, or inputs and attrs, not both")
    operator = find(op_type)
    named = {**(inputs or {}), **(attrs or {})}
    named = {k: v.value if isinstance(v, Attr) else v for k, v in named.items()}
    results = operator(*(a.value if isinstance(a, Attr) else a for a in args), **named)
    return results if outputs is None else _grouped(op_type, results, outputs)


def _grouped(op_type: str, results, outputs):
    """One value for each of `outputs`."""
    flat = torch.utils._pytree.tree_leaves(results)
    counts = [1 if isinstance(row, str) else row[1] for row in outputs]
    if len(flat) != sum(counts):
        raise ValueError(
            f"custom_op: {op_type} gives {len(flat)} results, but outputs names {sum(counts)}"
        )
    left = iter(flat)
    made = [
        next(left) if isinstance(row, str) else [next(left) for _ in range(count)]
        for row, count in zip(outputs, counts)
    ]
    return made[0] if len(made) == 1 else tuple(made)


def find(op_type: str):
    """The operator of a CamelCase name; ValueError where there is none, or more than one."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op_type).lower()
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        if rest.partition(".")[0] in (name, f"npu_{name}"):
            found.setdefault(space, set()).add(rest.partition(".")[0])
    own = [space for space in found if space not in _LAST and space not in _PYTORCH]
    if len(own) > 1:
        raise ValueError(f"custom_op: {op_type} is an operator of several libraries: {sorted(own)}")
    for space in (*own, *_LAST):
        if space in found:
            names = found[space]
            return getattr(getattr(torch.ops, space), name if name in names else f"npu_{name}")
    raise ValueError(
        f"custom_op: no operator called {name} for {op_type}. Load the library that defines it "
        "before the model is compiled, or write the converter with PyTorch's operators."
    )
