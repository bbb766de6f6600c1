# SPDX-License-Identifier: Apache-2.0
"""An API call once more, on the cpu and in a wider dtype: what a result is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch

from op_tools.core import options
from op_tools.core.containers import same_for_same, tensors_in, to_device, transform_contrainer
from op_tools.ditorch_compat import op_names
from op_tools.tools.dtype_cast import DEFAULT, parse_dtypes

_TO_DOUBLE = ",".join(f"torch.{name}->torch.float64" for name in ("float16", "bfloat16", "float32"))
# Operators whose reference is float64 unless <SUFFIX>_OP_DTYPE_CAST_DICT says otherwise.
_IN_DOUBLE = {"LINEAR", "EMBEDDING", "NORMALIZE", "NORM", "CROSS_ENTROPY", "MUL", "MATMUL"}


def reference_dtypes(name: str) -> dict[torch.dtype, torch.dtype]:
    """dtype -> that of the reference, for one API."""
    suffix = name.rpartition(".")[2].upper()
    variable = f"{suffix}_OP_DTYPE_CAST_DICT"
    given = options.text(variable)
    if given:
        return parse_dtypes(given, variable)
    if suffix in _IN_DOUBLE:
        return parse_dtypes(_TO_DOUBLE, variable)
    return parse_dtypes(options.text("OP_DTYPE_CAST_DICT", DEFAULT))


def unshared(name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments to call with so that leaves stay as they are: autograd lets none be written."""
    may_write = op_names.is_inplace_op(name, *args, **kwargs) or "out" in kwargs
    may_write = may_write or (name.endswith("_") and not name.endswith("__"))
    if not (may_write or op_names.is_view_op(name)):
        return args, kwargs

    def fresh(leaf: object) -> object:
        return leaf.clone() if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf

    once = same_for_same(fresh)
    return transform_contrainer(args, once), transform_contrainer(kwargs, once)


class ReferenceCall:
    """Made before the call, from its arguments; run() after it."""

    def __init__(
        self,
        name: str,
        function: Callable,
        args: tuple,
        kwargs: dict,
        dtypes: dict[torch.dtype, torch.dtype] | None = None,
    ) -> None:
        self.name = name
        self.function = function
        wanted = reference_dtypes(name) if dtypes is None else dtypes
        present = {tensor.dtype for tensor in tensors_in(args, kwargs)}
        self.dtypes = {a: b for a, b in wanted.items() if a in present}
        copy = same_for_same(
            lambda leaf: to_device("cpu", leaf, detach=True, dtype_cast_dict=self.dtypes)
        )
        self.args = transform_contrainer(args, copy)
        self.kwargs = transform_contrainer(dict(kwargs), copy)
        if isinstance(self.kwargs.get("device"), int):
            self.kwargs["device"] = torch.device("cpu")
        self.inputs = tensors_in(self.args, self.kwargs)
        self.result: object = None

    def run(self) -> object:
        args, kwargs = unshared(self.name, self.args, self.kwargs)
        self.result = self.function(*args, **kwargs)
        self.after = tensors_in(args, kwargs)
        return self.result

    def gradients(self, grad_outputs: tuple) -> tuple:
        """Of the inputs, for gradients of the results; None where there is none."""
        pairs = [
            (made, gradient.to(device="cpu", dtype=made.dtype))
            for made, gradient in zip(tensors_in(self.result), grad_outputs)
            if gradient is not None and made.grad_fn is not None
        ]
        wanted = [tensor for tensor in dict.fromkeys(self.inputs) if tensor.requires_grad]
        if not pairs or not wanted:
            return (None,) * len(self.inputs)
        found = torch.autograd.grad(
            [made for made, _ in pairs],
            wanted,
            [gradient for _, gradient in pairs],
            allow_unused=True,
        )
        by_tensor = {id(tensor): gradient for tensor, gradient in zip(wanted, found)}
        # As the watch tells them: once per tensor, at its first place.
        return tuple(by_tensor.pop(id(tensor), None) for tensor in self.inputs)
