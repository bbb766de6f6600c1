# SPDX-License-Identifier: Apache-2.0
"""OpOverflowCheck: the operator whose inputs were finite and whose results are not."""

from __future__ import annotations

import math
import weakref

import torch
from torch.optim import optimizer as optimizer_hooks

from op_tools.core import _C, options
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import describe_tensors, many, place_of

# Of optimizers whose state has names already: how many parameters have one.
_states: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


class OpOverflowCheck(OpTool):
    family = "OVERFLOW_CHECK"
    feature = "overflow_check"
    variables = ("HISTORY", "LIMIT")

    def __init__(self) -> None:
        super().__init__()
        # Of the call to blame; 0.1 us a call and 2 us a module.
        self.call_sites = True
        self.module_paths = True

    def start(self) -> OpOverflowCheck:
        super().start()
        hook = optimizer_hooks.register_optimizer_step_pre_hook(_name_gradients)
        self._optimizers = hook
        return self

    def stop(self) -> None:
        if self.is_running:
            self._optimizers.remove()
        super().stop()

    end = stop

    def make_core(self) -> _C.Overflow:
        return _C.Overflow(
            history=options.number("OP_OVERFLOW_CHECK_HISTORY", 16),
            limit=options.number("OP_OVERFLOW_CHECK_LIMIT", 100),
        )

    def events(self) -> list[dict]:
        """Calls with infinities or NaN in their results, in order; after stop()."""
        return self._last.events()

    def first(self) -> dict | None:
        """The first call whose inputs were finite and whose results are not; after stop()."""
        return next((event for event in self.events() if event["first_bad"]), None)

    def first_nan(self) -> dict | None:
        """The first call with NaN in its results, whatever its inputs were; after stop()."""
        return min(filter(_makes_nan, self.events()), key=lambda e: e["number"], default=None)

    def source(self) -> dict | None:
        """Where it began: the earlier of first() and first_nan(); after stop()."""
        found = [event for event in (self.first(), self.first_nan()) if event is not None]
        return min(found, key=lambda event: event["number"], default=None)

    def history(self) -> list[dict]:
        """The calls before and at source()."""
        return self._last.history()

    def unread(self) -> list[tuple[str, str, int]]:
        """(operator, why, tensors) that could not be checked; after stop()."""
        return self._last.unread()

    def report(self) -> None:
        core, unread = self._last, self.unread()
        if unread:
            shown = [f"{op} {count} ({why})" for op, why, count in unread[:3]]
            more = [f"{len(unread) - 3} more"] if len(unread) > 3 else []
            total = many(sum(count for _, _, count in unread), "tensor")
            print(f"OpOverflowCheck: not checked: {total}: {', '.join(shown + more)}")
        source = self.source()
        if source is not None:
            print(f"OpOverflowCheck: {story(source)}")
            print("OpOverflowCheck:   " + ", ".join(place_of(source)))
            for record in self.history():
                tensors = (
                    f"{describe_tensors(record['inputs'], 3)} -> "
                    f"{describe_tensors(record['outputs'], 2)}"
                )
                print(f"OpOverflowCheck:   {record['number']:>8} {record['op']:<36} {tensors}")
        nan = self.first_nan()
        if nan is not None and nan["number"] != source["number"]:
            print(f"OpOverflowCheck: {story(nan)}")
            print("OpOverflowCheck:   " + ", ".join(place_of(nan)))
        print(
            f"OpOverflowCheck: {many(core.checked, 'tensor')} checked, "
            f"{many(core.total, 'call')} with infinities or NaN in their results"
        )


def _name_gradients(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
    """What an optimizer works on is called after the parameter it is of."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                _C.name_after(parameter, parameter.grad, ".grad")
    if len(optimizer.state) != _states.get(optimizer):
        _states[optimizer] = len(optimizer.state)
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    _C.name_after(parameter, value, f" ({name})")


def _makes_nan(event: dict) -> bool:
    return any(tensor["output"] and tensor["nan"] for tensor in event["tensors"])


def story(event: dict) -> str:
    """One line: what made the infinity or the NaN, or what held it before."""
    outputs = [tensor for tensor in event["tensors"] if tensor["output"]]
    inputs = [tensor for tensor in event["tensors"] if not tensor["output"]]
    if event["first_bad"]:
        return f"{event['op']} made {_all(outputs, event)} from finite inputs"
    held = [tensor for tensor in inputs if tensor["nan"]]
    if held:
        holder = next((tensor for tensor in held if tensor["name"]), held[0])
        return (
            f"{_holder(holder)} held NaN before {event['op']} read it "
            f"({_which(holder, event)}); no call that was watched made it"
        )
    from_what = (
        "infinities in " + _which(inputs[0], event) if inputs else "an infinity it was given"
    )
    return f"{event['op']} made {_all(outputs, event)} from {from_what}"


def _holder(tensor: dict) -> str:
    return tensor["name"] or "a tensor of the program, no parameter,"


def _all(tensors: list[dict], event: dict) -> str:
    more = [f"{len(tensors) - 2} more"] if len(tensors) > 2 else []
    return "; ".join([_bad(tensor, event) for tensor in tensors[:2]] + more)


def _which(tensor: dict, event: dict) -> str:
    """`output 0`, `argument mat2`, `argument self[5], fc.weight`."""
    item = f"[{tensor['item']}]" if tensor["item"] or _is_list(tensor, event) else ""
    if tensor["output"] and not tensor["written"]:
        which = f"output {tensor['position']}{item}"
    else:
        which = f"argument {tensor['argument'] or tensor['position']}{item}"
    owner = tensor["name"] or _neighbour(tensor, event)
    return f"{which}, {owner}" if owner else which


def _is_list(tensor: dict, event: dict) -> bool:
    return "_foreach" in event["op"] or "_fused_" in event["op"]


def _neighbour(tensor: dict, event: dict) -> str:
    """Lists of an optimizer's call go together: state and gradient are those of a parameter."""
    if not _is_list(tensor, event):
        return ""
    names = (t["name"] for t in event["tensors"] if t["item"] == tensor["item"] and t["name"])
    name = next(names, "")
    return f"of {name}" if name else ""


def _bad(tensor: dict, event: dict) -> str:
    which = _which(tensor, event)
    if stats := tensor["statistics"]:
        kinds = [f"{stats[k]} {k}" for k in ("nan", "+inf", "-inf") if stats[k]]
        first = f", the first at {tensor['first']}" if tensor["first"] else ""
        return f"{', '.join(kinds)} of {stats['count']}{first} ({which})"
    kind = "NaN" if math.isnan(tensor["magnitude"]) else "an infinity"
    return f"{kind} ({which})"
