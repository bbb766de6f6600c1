# SPDX-License-Identifier: Apache-2.0
"""Translations for torch.onnx.export(dynamo=True), and the bodies, which that exporter cannot keep."""

from __future__ import annotations

import torch

from torch_npu.onnx.nodes import DOMAIN, OLDEST_OPSET, build, function_proto

_NOTE = "torch_npu.onnx"  # node.meta: the body, until it is attached


def translation(overload):
    """A function for custom_translation_table that makes the overload's node."""
    schema = overload._schema

    def translate(*args, **kwargs):
        from onnxscript import ir
        from torch.onnx._internal.exporter import _core

        names = [a.name for a in schema.arguments]
        made = build(schema, {**dict(zip(names, args)), **kwargs})
        node = ir.Node(
            DOMAIN,
            made.name,
            inputs=made.inputs,
            attributes=ir.convenience.convert_attributes(
                {k: v for k, v in made.attributes.items() if v != []}
            ),
            num_outputs=made.outputs,
            version=1,
        )
        if made.body is not None:
            node.meta[_NOTE] = made.body
        _core.current_tracer.nodes.append(node)
        return node.outputs[0] if made.outputs == 1 else tuple(node.outputs)

    translate.__name__ = schema.name.partition("::")[2]
    return translate


def translation_table(*names: str) -> dict:
    """For torch.onnx.export(custom_translation_table=...): all operators that have a body, or those named."""
    from torch_npu.onnx.bodies import choosers

    table = {}
    for name in names or choosers():
        bare, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.npu, bare), overload or "default")
        table[found] = translation(found)
    return table


def attach_functions(program) -> list[str]:
    """Gives the model of an ONNXProgram the bodies of its npu nodes; their names.

    Nodes of a model older than opset 18 stay without.
    """
    import onnx_ir

    model = program.model
    opset = model.opset_imports.get("", OLDEST_OPSET)
    attached = []
    for node in model.graph.all_nodes():
        body = node.meta.get(_NOTE)
        if body is None or opset < OLDEST_OPSET or node.op_type in attached:
            continue
        function = onnx_ir.serde.deserialize_function(function_proto(node.op_type, body, opset))
        model.functions[function.identifier()] = function
        attached.append(node.op_type)
    if attached:
        model.opset_imports[DOMAIN] = 1
    return attached
