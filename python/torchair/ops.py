# SPDX-License-Identifier: Apache-2.0
"""torchair.ops: functions that stay inside a graph.

Work of a graph runs in the graph's order on one stream, so events and waits between streams of a
graph have nothing to do; they are checked and accepted.
"""

import torch

_library = torch.library.Library("torchair", "DEF")
_library.define("npu_print(str text, Tensor[] tensors, int summarize_size) -> ()")


def _print(text: str, tensors, summarize_size: int) -> None:
    edge = 10**9 if summarize_size == -1 else summarize_size
    with torch._tensor_str.printoptions(edgeitems=edge, threshold=2 * edge):
        shown = [str(t.detach().cpu()) for t in tensors]
    print(text.format(*shown), flush=True)


for _key in ("CPU", "PrivateUse1"):
    _library.impl("npu_print", _print, _key)
torch.library.register_fake("torchair::npu_print", lambda *args: None, lib=_library)


def _keep_in_graphs() -> None:
    """It has no results: only as an effect it is not removed, and stays in order."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _register_effectful_op(torch.ops.torchair.npu_print.default, _EffectType.ORDERED)


_keep_in_graphs()


def npu_print(*args, summarize_size: int = 3) -> None:
    """Prints when the graph runs, without breaking it. Tensors show `summarize_size` elements at
    each end of a dimension, all of them with -1."""
    if isinstance(summarize_size, bool) or not isinstance(summarize_size, int):
        raise ValueError(f"npu_print: summarize_size: expected an int, but got {summarize_size!r}")
    if summarize_size < -1 or summarize_size == 0:
        raise ValueError(f"npu_print: summarize_size: {summarize_size} is neither positive nor -1")
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
    torch.ops.torchair.npu_print.default(" ".join(parts), tensors, summarize_size)


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


def npu_tagged_event_wait(event: TaggedEvent) -> None:
    """Nothing: earlier work of the graph ran earlier."""


def record() -> None:
    """Nothing, like npu_tagged_event_record."""


def wait(tensors) -> None:
    """Nothing, like npu_tagged_event_wait."""
    if not isinstance(tensors, (list, tuple)):
        raise ValueError(f"wait: expected a list of tensors, but got {type(tensors).__name__}")


def npu_wait_tensor(tensor: torch.Tensor, dependency: torch.Tensor) -> torch.Tensor:
    """`tensor`, after `dependency` was computed, which is so in a graph's order."""
    return tensor
