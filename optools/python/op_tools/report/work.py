# SPDX-License-Identifier: Apache-2.0
"""What a call computes and moves: floating point operations and bytes, from its shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from op_tools.captures import Record, TensorRef, arguments_of, leaves

# Attention as devices that are no GPU of PyTorch's have it: counted like the flash kernels.
_LIKE = {
    "aten::_scaled_dot_product_fused_attention_overrideable": "_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
}


@cache
def _formulas() -> dict[str, Callable]:
    """PyTorch's own, by operator."""
    from torch.utils.flop_counter import flop_registry

    found = {}
    for packet, formula in flop_registry.items():
        name = str(packet)
        if name.startswith("aten."):
            found["aten::" + name.removeprefix("aten.")] = formula
    for name, like in _LIKE.items():
        if f"aten::{like}" in found:
            found.setdefault(name, found[f"aten::{like}"])
    return found


def _shapes(value: object) -> object:
    if isinstance(value, TensorRef):
        return list(value.shape)
    if isinstance(value, (list, tuple)):
        return [_shapes(item) for item in value]
    return value


def flops(record: Record) -> float | None:
    """Multiplications and additions; None for operators without a formula."""
    formula = _formulas().get(record.op.partition(".")[0])
    if formula is None or record.raised:
        return None
    made = [_shapes(value) for value in record.outputs]
    try:
        given = [
            _shapes(value)
            for argument, value in zip(arguments_of(record.schema), record.args)
            if not argument.kwarg_only  # alpha and beta count for nothing
        ]
        return float(formula(*given, out_val=made[0] if made else None))
    except Exception:  # an untrusted file may hold anything
        return None


def _bytes(ref: TensorRef) -> int:
    return ref.numel * ref.dtype.itemsize


def moved(record: Record) -> float | None:
    """Bytes of the tensors it reads and makes, each once; 0 of a view."""
    if record.raised:
        return None
    given = [ref for _, ref in leaves([record.args, record.kwargs], "")]
    made = [ref for _, ref in leaves(record.outputs, "")]
    if not given and not made:
        return None
    storages = {(ref.device, ref.storage) for ref in given if ref.storage}
    if made and not record.after and all((r.device, r.storage) in storages for r in made):
        return 0.0
    distinct = {(ref.device, ref.storage, ref.offset, ref.shape): ref for ref in [*given, *made]}
    return float(sum(map(_bytes, distinct.values())))
