# SPDX-License-Identifier: Apache-2.0
"""Fused attention of another device, called on the cpu: PyTorch has an operator per kernel."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

_FUSED = re.compile(
    r"aten::_scaled_dot_product_(fused|efficient|flash|cudnn)_attention(_overrideable)?(_backward)?"
)
# The names two operators have for one argument.
_SAME = {"attn_mask": "attn_bias", "grad_out": "grad_out_"}


def cpu_form(function: Callable) -> Callable:
    """The function itself; of a fused attention the cpu has no kernel of, what calls the cpu's own
    with its arguments and returns what it returns."""
    schema = getattr(function, "_schema", None)
    found = _FUSED.fullmatch(schema.name) if schema is not None else None
    if found is None or schema.overload_name:
        return function
    own = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    if found[3]:
        own = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def call(*args: object, **kwargs: object) -> tuple:
        given = {argument.name: argument.default_value for argument in schema.arguments}
        given.update(zip((argument.name for argument in schema.arguments), args))
        given.update(kwargs)
        if given["dropout_p"]:
            raise RuntimeError(
                f"{schema.name} with dropout {given['dropout_p']}: the cpu's fused attention draws "
                "no mask. Replay it on the device it was captured on."
            )
        positional, named = [], {}
        for argument in own.default._schema.arguments:
            name = argument.name if argument.name in given else _SAME.get(argument.name, "")
            value = given.get(name)
            if name == "logsumexp" and value.dim() == 4:  # cuDNN's has a column
                value = value.squeeze(-1)
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        made = own.default(*positional, **named)
        return (*made, *_rest(schema, len(made), given))

    call._schema = schema
    return call


def _rest(schema: torch._C.FunctionSchema, made: int, given: dict) -> list:
    """Results beyond the cpu's: sizes, and a generator's state that nothing was drawn from."""
    sizes = {"max_q": given["query"].shape[2], "max_k": given["key"].shape[2]}
    states = ("philox_seed", "philox_offset")
    return [
        sizes.get(
            result.name, torch.zeros((), dtype=torch.int64) if result.name in states else None
        )
        for result in schema.returns[made:]
    ]
