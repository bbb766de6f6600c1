# SPDX-License-Identifier: Apache-2.0
"""The results of a traced function: values written into inputs, and the caller's results."""

import torch

from torchair._file_rules import NotWritable


def write_in_place(module, signature, places) -> list:
    """Results that only update an input become copy_ nodes. Returns the caller's results."""
    from torch.export.graph_signature import OutputKind

    names = {s.target: s.arg.name for s in signature.input_specs if s.target is not None}
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    nodes = {n.name: n for n in module.graph.nodes}
    # A written input that is also returned is the input, as in eager mode.
    written = {
        value: nodes[names.get(spec.target, spec.target)]
        for spec, value in zip(signature.output_specs, output.args[0], strict=True)
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    }
    kept, results = [], []
    for spec, value in zip(signature.output_specs, output.args[0], strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            value = written.get(value, value)
            again = _views_of(value, written)
            if not isinstance(value, torch.fx.Node):
                results.append({"value": value})
            elif value.op == "placeholder":
                results.append({"input": places[value.name]})
            else:
                results.append({"result": len(kept)})
                kept.append((value, again))
            continue
        if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            raise NotWritable(f"a result is a {spec.kind.name}")
        target = nodes[names.get(spec.target, spec.target)]
        with module.graph.inserting_before(output):
            copied = module.graph.call_function(torch.ops.aten.copy_.default, (target, value))
        copied.meta = dict(target.meta)
    with module.graph.inserting_before(output):
        output.args = ([_viewed_again(module.graph, *row, written) for row in kept],)
    return results


def _views_of(value, written: dict) -> list:
    """The views by which `value` shows a value that is written into an input; [] for others."""
    chain = []
    while isinstance(value, torch.fx.Node) and value not in written:
        if not (isinstance(value.target, torch._ops.OpOverload) and value.target.is_view):
            return []
        chain.append(value)
        value = value.args[0]
    return chain[::-1] if isinstance(value, torch.fx.Node) else []


def _viewed_again(graph: torch.fx.Graph, value, chain: list, written: dict):
    """A result that shows a written input in eager mode shows it here too."""
    if not chain:
        return value
    known = {chain[0].args[0]: written[chain[0].args[0]]}
    for node in chain:
        known[node] = graph.node_copy(node, lambda n: known.get(n, n))
    return known[value]
