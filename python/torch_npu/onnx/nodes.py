# SPDX-License-Identifier: Apache-2.0
"""A call of an operator as a node of domain `npu`: its name, inputs, attributes and body.

Tensors are inputs in the schema's order, everything else is an attribute under its name there;
arguments that are None are left out. Both exporters build their nodes from this.
"""

from __future__ import annotations

import dataclasses
import functools

import torch

from torch_npu.onnx.bodies import Body, choosers

DOMAIN = "npu"
OLDEST_OPSET = 18  # of a model whose nodes can have bodies
_NAMES = {"npu_geglu": "NPUGeGlu"}  # Ascend's, where the rule gives another


def node_name(operator: str) -> str:
    """npu_rms_norm: NPURmsNorm."""
    bare = operator.partition(".")[0]
    words = bare.strip("_").removeprefix("npu_").split("_")
    return _NAMES.get(bare) or "NPU" + "".join(w[:1].upper() + w[1:] for w in words)


@dataclasses.dataclass
class Node:
    name: str
    inputs: list  # None: absent
    attributes: dict
    outputs: int
    body: Body | None


def is_tensor(argument) -> bool:
    return "Tensor" in str(argument.type)


def build(schema, given: dict) -> Node:
    """`given`: the call's arguments by name; tensors are whatever the exporter has for them."""
    operator = schema.name.partition("::")[2]
    whole = f"{operator}.{schema.overload_name}" if schema.overload_name else operator
    inputs, attributes = [], {}
    for argument in schema.arguments:
        value = given.get(argument.name, argument.default_value)
        if is_tensor(argument):
            inputs += list(value) if isinstance(value, (list, tuple)) else [value]
        elif value is not None and not isinstance(value, (torch.Generator, torch.device)):
            number = str(argument.type) in ("number", "Scalar")
            attributes[argument.name] = float(value) if number else _plain(value)
    name = node_name(whole)
    choose = choosers().get(whole)
    body = None
    if choose is not None:
        arguments = {a.name: given.get(a.name, a.default_value) for a in schema.arguments}
        # Two bodies serve more than one operator and ask which.
        asks = "operator" in choose.__code__.co_varnames[: choose.__code__.co_argcount]
        body = choose(**({"operator": whole} if asks else {}), **arguments)
    if body is not None:
        name += body.suffix
        inputs = [x for x in inputs if x is not None]
    return Node(name, _without_tail(inputs), attributes, len(schema.returns), body)


def _plain(value):
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _without_tail(inputs: list) -> list:
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


@functools.cache
def function_proto(name: str, body: Body, opset: int):
    """The model-local function of a node's name."""
    import onnx.parser

    attributes = f"<{body.attributes}>" if body.attributes else ""
    return onnx.parser.parse_function(
        f'<opset_import: ["" : {opset}], domain: "{DOMAIN}">\n'
        f"{name} {attributes} ({body.inputs}) => ({body.outputs}) {{\n{body.text}\n}}"
    )
