# SPDX-License-Identifier: Apache-2.0
"""Symbolics for torch.onnx.export(dynamo=False)."""

from __future__ import annotations

import torch
from torch.onnx._internal.torchscript_exporter import registration, symbolic_helper
from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

from torch_npu.onnx.nodes import DOMAIN, OLDEST_OPSET, build, function_proto, is_tensor

_LETTERS = {int: "i", float: "f", str: "s"}


class _Function:
    """The interface of an onnxscript function that the exporter uses."""

    class opset:
        domain, version = DOMAIN, 1

    def __init__(self, name, body, opset: int):
        self.name, self._body, self._opset = name, body, opset

    def to_function_proto(self):
        return function_proto(self.name, self._body, self._opset)


def _constant(value, kind: str):
    """A constant of the traced graph as Python's. `kind`: a type of the operator's schema."""
    if symbolic_helper._is_none(value):
        return None
    bare = kind.removeprefix("Optional[").removesuffix("]") if "Optional" in kind else kind
    if bare.startswith("List[") or bare.endswith("[]"):
        return symbolic_helper._parse_arg(value, "fs" if "float" in bare else "is")
    if bare in ("number", "Scalar"):
        number = symbolic_helper._maybe_get_const(value, "t")
        return number.item() if isinstance(number, torch.Tensor) else number
    letter = {"float": "f", "str": "s", "bool": "b"}.get(bare, "i")
    return symbolic_helper._parse_arg(value, letter)


def _tensors(value):
    if symbolic_helper._is_none(value):
        return None
    return symbolic_helper._unpack_list(value) if symbolic_helper._is_packed_list(value) else value


def _forget(name: str) -> None:
    """Drops the body that an earlier export left with the exporter, which would find it by the node's name."""
    if registration.registry.is_registered_op(name, 1):
        registration.custom_onnx_symbolic(name, 1)(_no_body)


def _no_body(*values):
    raise RuntimeError("a node of domain npu is no operator of torch")


def symbolic(g, *values):
    """The symbolic of every operator of namespace npu: its schema says all there is to say."""
    # The node has lost its schema: the exporter made tensors of its constants.
    overloads = torch._C._jit_get_schemas_for_operator(g.original_node.kind())
    schema = next(s for s in overloads if len(s.arguments) == len(values))
    given = {
        a.name: _tensors(v) if is_tensor(a) else _constant(v, str(a.type))
        for a, v in zip(schema.arguments, values)
    }
    node = build(schema, given)
    attributes = {}
    for name, value in node.attributes.items():
        first = value[0] if isinstance(value, list) and value else value
        if first != []:  # an empty list has no type: left out
            attributes[f"{name}_{_LETTERS[type(first)]}"] = value
    inputs = [g.op("prim::Constant") if x is None else x for x in node.inputs]
    opset = GLOBALS.export_onnx_opset_version
    if node.body is None or opset < OLDEST_OPSET:
        _forget(f"{DOMAIN}::{node.name}")
        made = g.op(f"{DOMAIN}::{node.name}", *inputs, outputs=node.outputs, **attributes)
    else:
        function = _Function(node.name, node.body, opset)
        made = g.onnxscript_op(function, *inputs, outputs=node.outputs, **attributes)
    # The exporter infers no shapes of custom nodes; the traced ones are right.
    for new, old in zip(made if node.outputs > 1 else (made,), g.original_node.outputs()):
        new.setType(old.type())
    return made
