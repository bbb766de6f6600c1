# SPDX-License-Identifier: Apache-2.0
"""out=(a, b, c): results of an npu operator given as one argument.

The schemas name each result (var, m, v); PyTorch takes those names. Programs for Ascend give all of them as
`out=`, to the operator and to its overload: torch_npu.npu_fused_infer_attention_score.out(..., out=[a, b]).
"""

import functools

import torch
from torch._ops import OpOverload, OpOverloadPacket

from torch_npu.ops._check import require


def _written(schema) -> tuple[str, ...]:
    """Names of the results that a schema takes as keywords."""
    return tuple(a.name for a in schema.arguments if a.kwarg_only and a.is_out)


@functools.cache
def _schemas(qualified: str) -> dict:
    return {s.overload_name: s for s in torch._C._jit_get_schemas_for_operator(qualified)}


def _by_name(qualified: str, names: tuple[str, ...], kwargs: dict) -> dict:
    given = kwargs.pop("out")
    given = (given,) if isinstance(given, torch.Tensor) else tuple(given)
    name = qualified.partition("::")[2]
    require(
        len(given) == len(names),
        f"{name}: out has {len(given)} tensors; it takes {len(names)}: ({', '.join(names)}).",
    )
    return {**kwargs, **dict(zip(names, given))}


class _Overload(OpOverload):
    def __call__(self, /, *args, **kwargs):
        if kwargs.get("out") is not None:
            kwargs = _by_name(self._schema.name, _written(self._schema), kwargs)
        return self._op(*args, **kwargs)


class _Packet(OpOverloadPacket):
    def __getattr__(self, key):
        found = super().__getattr__(key)
        if key == "out" and type(found) is OpOverload:
            found.__class__ = _Overload
        return found

    def __call__(self, /, *args, **kwargs):
        if kwargs.get("out") is not None:
            return self.out(*args, **kwargs)
        return self._op(*args, **kwargs)


def add(packet: OpOverloadPacket) -> None:
    """Lets a packet whose results have names take them as `out` too."""
    schema = _schemas(packet._qualified_op_name).get("out")
    if schema is not None and _written(schema) != ("out",):
        packet.__class__ = _Packet


# ---- overloads that write the results of the default one --------------------------------


def _write(operator: str, name: str, out: torch.Tensor, result: torch.Tensor) -> None:
    if result.numel() == 0 and out.shape != result.shape:
        return  # a result that was not asked for
    require(
        out.dtype == result.dtype,
        f"{operator}: {name} is {out.dtype}; the result is {result.dtype}.",
        "TYPE",
    )
    if out.numel() == 0:
        out.resize_(result.shape)
    require(
        out.shape == result.shape,
        f"{operator}: {name} has shape {list(out.shape)}; the result has {list(result.shape)}.",
    )
    out.copy_(result)


def writes_results(namespace: str, name: str):
    """The function of `name.out` for an operator whose default overload returns the same; None without."""
    schemas = _schemas(f"{namespace}::{name}")
    if "out" not in schemas or "" not in schemas or not _written(schemas["out"]):
        return None
    names = _written(schemas["out"])
    order = [a.name for a in schemas["out"].arguments]

    def call(*args, **kwargs):
        bound = {**dict(zip(order, args)), **kwargs}
        outs = [bound.pop(n) for n in names]
        bound.pop("workspace", None)  # memory for the kernel: none is needed
        results = getattr(getattr(torch.ops, namespace), name).default(**bound)
        results = results if isinstance(results, (tuple, list)) else (results,)
        for key, out, result in zip(names, outs, results):
            _write(name, key, out, result)
        return tuple(outs) if len(outs) > 1 else outs[0]

    return call
