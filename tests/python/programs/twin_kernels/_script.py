# SPDX-License-Identifier: Apache-2.0
import json, sys, warnings
sys.path.insert(0, "tests/opinfo")
warnings.simplefilter("ignore")
import torch, torch_npu
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

def moved(value):
    return value.to("npu") if isinstance(value, torch.Tensor) else value

def bits(value):
    return [x.detach().cpu().contiguous() if isinstance(x, torch.Tensor) else x for x in tree_flatten(value)[0]]

def run(op, sample):
    try:
        args = tree_map(moved, (sample.input, sample.args, sample.kwargs))
        return bits(op(args[0], *args[1], **args[2]))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"

def same(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and ((x == y) | ((x != x) & (y != y))).all()
        if isinstance(x, torch.Tensor) else x == y for x, y in zip(a, b))

# Random, or its result is uninitialised memory.
SKIPPED = ("empty", "new_empty", "dropout", "rand", "normal", "bernoulli", "multinomial", "uniform", "exponential",
           "cauchy", "geometric", "rrelu", "scaled_dot_product_attention", "multi_head_attention", "resize", "sparse")
compared, wrong, unboxed = 0, [], 0
part, parts = int(sys.argv[1]), int(sys.argv[2])
for op in sorted(op_db, key=lambda op: op.full_name)[part::parts]:
    if torch.float32 not in op.dtypes or any(word in op.name for word in SKIPPED):
        continue
    sample = next(iter(op.sample_inputs("cpu", torch.float32)), None)
    if sample is None:
        continue
    expected = run(op, sample)
    torch_npu._C._set_uses_cpu_functions(False)
    found = run(op, sample)
    torch_npu._C._set_uses_cpu_functions(True)
    compared += 1
    if not same(expected, found):
        wrong.append([op.full_name, str(expected)[:200], str(found)[:200]])
print(json.dumps({"compared": compared, "wrong": wrong}))
