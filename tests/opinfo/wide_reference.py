# SPDX-License-Identifier: Apache-2.0
"""The CPU as npu is to answer: what ops/wide.yaml lists is computed in the wider dtype and rounded once.

The list is read here and by the generator; the arithmetic is PyTorch's own casts, written again.
"""

from pathlib import Path

import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

FILE = Path(__file__).resolve().parents[2] / "ops/wide.yaml"
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
    torch.bool: torch.uint8,
}


HALVES = ("float16", "bfloat16")
COMPLEX_WITH_HALF = (torch.complex32, torch.float16)


def read_rows() -> dict[str, list[dict]]:
    """Rows by operator, `halves` spelled out, dtypes as PyTorch's."""
    found: dict[str, list[dict]] = {}
    sections = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    for section, rows in sections.items():
        for row in rows if section not in ("refused", "composites") else ():
            made = {**row, "dtypes": dtypes_of(row), "slow": section == "slow"}
            found.setdefault(row["func"], []).append(made)
    return found


def dtypes_of(row: dict) -> set:
    names = [d for n in row.get("dtypes", ()) for d in (HALVES if n == "halves" else (n,))]
    return {getattr(torch, d) for d in names}


ROWS = read_rows()
REFUSED = yaml.safe_load(FILE.read_text(encoding="utf-8"))["refused"]
LISTED = {d for rows in ROWS.values() for row in rows for d in row["dtypes"]}


# Operators that call a listed one where no mode of Python sees it.
CALLS = {"log_softmax": "_log_softmax"}


def plain_name(func) -> str:
    name = func._schema.name.partition("::")[2]
    plain = name[:-1] if name.endswith("_") and not name.startswith("__") else name
    return CALLS.get(plain, plain)


def gives_complex_halves(values: dict, outs: set) -> bool:
    """By PyTorch's rules of promotion, or because dtype= asks for them."""
    if values.get("dtype") is not None:
        return values["dtype"] == torch.complex32
    operands = [
        v
        for name, v in values.items()
        if name not in outs and isinstance(v, (torch.Tensor, complex)) and not isinstance(v, bool)
    ]
    if not any(isinstance(v, torch.Tensor) for v in operands):
        return False
    first = operands[0]
    return torch.result_type(first, operands[1] if len(operands) > 1 else first) == torch.complex32


def multiplied_in_float32(dtype) -> bool:
    import torch_npu

    return torch_npu._C._half_products()[str(dtype)[6:]][0]


def pays(row: dict, operands: list) -> bool:
    """At least 4 of each side and 16,384 products, of the last two tensors."""
    if "worth" not in row:
        return True
    a, b = operands[-2:]
    sides = (a.shape[-2], a.shape[-1], b.shape[-1])
    batch = a.shape[0] if a.dim() == 3 else 1
    return min(sides) >= 4 and batch * sides[0] * sides[1] * sides[2] >= 16384


def decide(func, values: dict):
    """(low, wide, results to round or None for all), or None where the call stays as it is."""
    outs = {a.name for a in func._schema.arguments if a.is_out}
    operands = [
        t
        for name, value in values.items()
        if name not in outs
        for t in tree_leaves(value)
        if isinstance(t, torch.Tensor) and not t.is_sparse
    ]
    read = {t.dtype for t in operands}
    for row in ROWS.get(plain_name(func), ()):
        if torch.complex32 in row["dtypes"] and gives_complex_halves(values, outs):
            return torch.complex32, torch.complex64, None
        low = next((d for d in row["dtypes"] if d in read), None)
        if low is None or ("when" in row and not values.get(row["when"])):
            continue
        if row["slow"] and not (multiplied_in_float32(low) and pays(row, operands)):
            continue
        mixed = (low.is_floating_point or low.is_complex) and any(
            d != low for d in read if d.is_floating_point or d.is_complex
        )
        if mixed and "mixed" not in row:
            continue
        wide = getattr(torch, row["as"]) if "as" in row else WIDER[low]
        return low, wide, row["mixed"] if mixed else row.get("rounded")
    return None


class WideReference(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if plain_name(func) not in ROWS:
            return func(*args, **kwargs)
        names = [a.name for a in func._schema.arguments]
        values = {**dict(zip(names, args)), **kwargs}
        plan = decide(func, values)
        if plan is None:
            return func(*args, **kwargs)
        low, wide, rounded = plan
        pairs = {}

        def widen(value):
            if isinstance(value, torch.Tensor) and value.dtype == low:
                return pairs.setdefault(id(value), (value, value.to(wide)))[1]
            if isinstance(value, torch.Tensor) and (low, value.dtype) == COMPLEX_WITH_HALF:
                return pairs.setdefault(id(value), (value, value.float()))[1]
            return wide if isinstance(value, torch.dtype) and value == low else value

        result = func(**tree_map(widen, values))
        written = {a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write}
        if "batch_norm" in plain_name(func) and "backward" not in plain_name(func):
            written |= {"running_mean", "running_var"}  # which their schema does not say
        for name in written:
            for value in tree_leaves(values.get(name)):
                if id(value) in pairs:
                    kept, made = pairs[id(value)]
                    if kept.shape != made.shape:
                        kept.resize_(made.shape)
                    kept.copy_(made)
        back = {id(made): kept for kept, made in pairs.values()}
        count = [-1]

        def narrow(value):
            count[0] += 1
            if not isinstance(value, torch.Tensor) or id(value) in back:
                return back.get(id(value), value)
            keep = value.dtype != wide or (rounded is not None and count[0] not in rounded)
            return value if keep else value.to(low)

        return tree_map(narrow, result)
