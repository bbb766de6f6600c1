# SPDX-License-Identifier: Apache-2.0
"""torchair.ops: functions that stay inside a graph.

Work of a graph runs in the graph's order on one stream, so events and waits between streams of a
graph have nothing to do; they are checked and accepted.
"""

import inspect

import torch

from torchair._accepted import note
from torchair.scope import npu_wait_tensor  # noqa: F401  (TorchAir has it in both)

_library = torch.library.Library("torchair", "DEF")
_library.define(
    "npu_print(str text, Tensor[] tensors, int summarize_size, bool tensor_detail) -> ()"
)


def _print(text: str, tensors, summarize_size: int, tensor_detail: bool) -> None:
    shown = [_shown(t.detach().cpu(), summarize_size, tensor_detail) for t in tensors]
    print(text.format(*shown), flush=True)


def _shown(tensor: torch.Tensor, edge: int, detail: bool) -> str:
    """As Ascend prints it: [1 2 ... 9 10]."""
    text = _rows(tensor, edge, 1)
    if detail:
        text = f"tensor({text}, shape={list(tensor.shape)}, dtype={tensor.dtype})"
    return text


def _rows(tensor: torch.Tensor, edge: int, depth: int) -> str:
    if tensor.dim() == 0:
        value = tensor.item()
        return f"{value:g}" if isinstance(value, float) else str(value)
    places = list(range(tensor.shape[0]))
    if edge != -1 and len(places) > 2 * edge:
        places[edge:-edge] = [None]
    parts = ["..." if i is None else _rows(tensor[i], edge, depth + 1) for i in places]
    return "[" + (" " if tensor.dim() == 1 else "\n" + " " * depth).join(parts) + "]"


for _key in ("CPU", "PrivateUse1"):
    _library.impl("npu_print", _print, _key)
torch.library.register_fake("torchair::npu_print", lambda *args: None, lib=_library)


def _keep_in_graphs() -> None:
    """It has no results: only as an effect it is not removed, and stays in order."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _register_effectful_op(torch.ops.torchair.npu_print.default, _EffectType.ORDERED)


_keep_in_graphs()


def npu_print(*args, summarize_size: int = 3, tensor_detail: bool = False) -> None:
    """Prints when the graph runs, without breaking it. Tensors show `summarize_size` elements at
    each end of a dimension, all of them with -1; with `tensor_detail` sizes and dtype too."""
    if isinstance(summarize_size, bool) or not isinstance(summarize_size, int):
        raise ValueError(f"npu_print: summarize_size: expected an int, but got {summarize_size!r}")
    if summarize_size < -1 or summarize_size == 0:
        raise ValueError(f"npu_print: summarize_size: {summarize_size} is neither positive nor -1")
    if not isinstance(tensor_detail, bool):
        raise ValueError(f"npu_print: tensor_detail: expected a bool, but got {tensor_detail!r}")
    parts, tensors = [], []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            parts.append("{}")
            tensors.append(arg)
        elif isinstance(arg, (str, int, float, bool)) or arg is None:
            parts.append(str(arg).replace("{", "{{").replace("}", "}}"))
        else:
            raise ValueError(
                f"npu_print: expected tensors, numbers and text, but got {type(arg).__name__}"
            )
    if not tensors:
        raise ValueError("npu_print: expected at least one tensor")
    torch.ops.torchair.npu_print.default(" ".join(parts), tensors, summarize_size, tensor_detail)


class TaggedEvent:
    """An event between streams of a graph, by name."""

    def __init__(self, tag: str):
        if not isinstance(tag, str) or not tag:
            raise ValueError(f"npu_create_tagged_event: tag: expected a name, but got {tag!r}")
        self.tag = tag


def npu_create_tagged_event(tag: str) -> TaggedEvent:
    return TaggedEvent(tag)


def npu_tagged_event_record(event: TaggedEvent) -> None:
    """Nothing: later work of the graph runs later."""
    note("torchair.ops.npu_tagged_event_record")


def npu_tagged_event_wait(event: TaggedEvent) -> None:
    """Nothing: earlier work of the graph ran earlier."""
    note("torchair.ops.npu_tagged_event_wait")


def npu_record_tagged_stream(input: torch.Tensor, tagged_stream: str) -> None:
    """Nothing: one stream uses the memory, so it is never given away too early."""
    if not isinstance(input, torch.Tensor) or not isinstance(tagged_stream, str):
        raise ValueError(
            "npu_record_tagged_stream: expected a tensor and the name of a stream, but got "
            f"{type(input).__name__} and {tagged_stream!r}"
        )
    note("torchair.ops.npu_record_tagged_stream")


def record() -> torch.Tensor:
    """A tensor that `wait` takes. There is nothing to wait for: later work of the graph runs later."""
    note("torchair.ops.record")
    return torch.empty(0, device="npu")


def wait(tensors: list[torch.Tensor]) -> None:
    """Nothing, like npu_tagged_event_wait."""
    if not isinstance(tensors, (list, tuple)) or not all(
        isinstance(t, torch.Tensor) for t in tensors
    ):
        raise ValueError(f"wait: tensors: expected a list of tensors, but got {tensors!r}")
    note("torchair.ops.wait")


def npu_fused_infer_attention_score(query, key, value, **kwargs):
    """torch_npu.npu_fused_infer_attention_score with lengths in int64 tensors."""
    return torch.ops.torchair.npu_fused_infer_attention_score(query, key, value, **kwargs)


def npu_fused_infer_attention_score_v2(query, key, value, **kwargs):
    """torch_npu.npu_fused_infer_attention_score_v2 with lengths in int64 tensors."""
    return torch.ops.torchair.npu_fused_infer_attention_score_v2(query, key, value, **kwargs)


def _define_with_lengths(function) -> None:
    """The npu operator with tensors for its lists: it reads them when it runs, in a graph as well."""
    name = function.__name__
    target = getattr(torch.ops.npu, name).default
    schema = str(target._schema).partition("::")[2].replace("SymInt[]?", "Tensor?")
    _library.define(schema)
    own = getattr(torch.ops.torchair, name).default._schema
    pairs = zip(target._schema.arguments, own.arguments)
    names = [theirs.name for theirs, ours in pairs if str(theirs.type) != str(ours.type)]

    def call(*args, **kwargs):
        read = {n: kwargs[n].tolist() for n in names if kwargs.get(n) is not None}
        return target(*args, **{**kwargs, **read})

    def fake(*args, **kwargs):
        return target(*args, **{k: v for k, v in kwargs.items() if k not in names})

    for key in ("CPU", "PrivateUse1"):
        _library.impl(name, call, key)
    torch.library.register_fake(f"torchair::{name}", fake, lib=_library)

    function.__signature__ = _signature(own)


def _signature(schema) -> inspect.Signature:
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([
        inspect.Parameter(
            a.name, kinds[a.kwarg_only],
            default=a.default_value if a.has_default_value() else inspect.Parameter.empty,
        )
        for a in schema.arguments
    ])  # fmt: skip


for _function in (npu_fused_infer_attention_score, npu_fused_infer_attention_score_v2):
    _define_with_lengths(_function)
