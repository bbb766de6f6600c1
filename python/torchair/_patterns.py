# SPDX-License-Identifier: Apache-2.0
"""register_replacement: parts of a graph that a program replaces, each part written as a function.

PyTorch's pattern matcher finds them. Before a part is replaced, its results are compared with those
of the replacement: sizes, dtype and device must be the same.
"""

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._inductor import pattern_matcher
from torch._inductor.pattern_matcher import Match, PatternMatcherPass, fwd_only, joint_fwd_bwd
from torch._prims_common import compute_elementwise_output_logical_to_physical_perm
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from torchair._results import refuse_others


def _return_true(match: Match) -> bool:
    return True


class Patterns:
    """The replacements that one package of a program's imports registered."""

    def __init__(self, name: str):
        self._name = name
        self.clear()

    def clear(self) -> None:
        self._in_graphs = PatternMatcherPass(pass_name=f"{self._name}_patterns")
        # A joint graph holds forward and backward, before they are parted.
        self._in_joint_graphs = PatternMatcherPass(pass_name=f"{self._name}_joint_patterns")

    def register(
        self, search_fn, replace_fn, example_inputs, trace_fn, extra_check, search_fn_pattern,
        scalar_workaround, skip_duplicates,
    ) -> None:  # fmt: skip
        for name, value in (
            ("search_fn", search_fn), ("replace_fn", replace_fn), ("trace_fn", trace_fn),
            ("extra_check", extra_check),
        ):  # fmt: skip
            if not callable(value):
                raise TypeError(
                    f"register_replacement: {name}: expected a function, but got "
                    f"{type(value).__name__}"
                )
        inputs = _inputs(search_fn, example_inputs, scalar_workaround or {})
        replacement = _Replacement(search_fn, replace_fn, extra_check, trace_fn)
        pattern_matcher.register_replacement(
            search_fn=replacement.search,
            replace_fn=replacement.replace,
            example_inputs=inputs,
            trace_fn=replacement.trace,
            pass_dicts=self._in_joint_graphs if replacement.is_joint else self._in_graphs,
            extra_check=replacement.check,
            search_fn_pattern=search_fn_pattern,
            scalar_workaround=scalar_workaround,
            skip_duplicates=skip_duplicates,
        )

    def apply(self, module: torch.fx.GraphModule) -> int:
        """Replaces the matches in a graph of AOTAutograd. Returns their number."""
        return _applied(self._in_graphs, module)

    def apply_to_joint(self, module: torch.fx.GraphModule) -> int:
        return _applied(self._in_joint_graphs, module)


def _applied(patterns: PatternMatcherPass, module: torch.fx.GraphModule) -> int:
    count = patterns.apply(module)
    if count:  # the replacement stands at the place of its first result
        pattern_matcher.stable_topological_sort(module.graph)
    return count


def _inputs(search_fn, example_inputs, scalars: dict) -> list:
    if isinstance(example_inputs, torch.Tensor) or not isinstance(example_inputs, Iterable):
        raise TypeError(
            "register_replacement: example_inputs: expected a list of inputs, but got "
            f"{type(example_inputs).__name__}"
        )
    inputs = list(example_inputs)
    names = [n for n in inspect.signature(search_fn).parameters if n not in scalars]
    if len(inputs) != len(names):
        raise ValueError(
            f"register_replacement: {_named(search_fn)} takes {', '.join(names) or 'nothing'}, "
            f"but example_inputs holds {len(inputs)} values"
        )
    return inputs


def _named(function) -> str:
    return getattr(function, "__name__", repr(function))


def _innermost(function):
    while isinstance(function, functools.partial):
        function = function.func
    return function


class _Replacement:
    """One pair of functions, as the pattern matcher calls them."""

    def __init__(self, search_fn, replace_fn, extra_check, trace_fn):
        self._extra_check, self._trace = extra_check, trace_fn
        self.is_joint = _innermost(trace_fn) is joint_fwd_bwd
        self._takes_table = "get_decomp_fn" in inspect.signature(trace_fn).parameters
        self._match: Match | None = None
        # Of the last search graph; None with a pattern of the program's own.
        self._keywords: Counter | None = None

        @functools.wraps(search_fn)
        def search(*args, **kwargs):
            try:
                return search_fn(*args, **kwargs)
            except (AssertionError, IndexError, TypeError, ValueError) as error:
                # The matcher takes a RuntimeError for "no match": these sizes do not fit.
                raise RuntimeError(f"{_named(search_fn)} cannot be traced: {error}") from error

        @functools.wraps(replace_fn)
        def replace(*args, **kwargs):
            return self._checked(replace_fn, args, replace_fn(*args, **kwargs))

        self.search, self.replace = search, replace

    def trace(self, function, args, **_):
        # Graphs hold PyTorch's operators as they are, so patterns are not decomposed either.
        table = {"get_decomp_fn": dict} if self._takes_table else {}
        # Graphs hold autocast's casts as operators, so patterns are traced without it.
        with torch._C._DisableAutocast():
            made = self._trace(function, args, **table)
        held = [n.target for n in made.graph.nodes if n.op == "get_attr"]
        if held and isinstance(getattr(made, held[0], None), torch.Tensor):
            raise ValueError(
                f"register_replacement: {_named(function)} holds a tensor as a constant. Pass it as an "
                "input, or make it with an operator such as torch.full."
            )
        if function is not self.replace:
            self._keywords = _keywords(made.graph.nodes)
        return made

    def check(self, match: Match) -> bool:
        self._match = match
        # The matcher ignores keywords that the pattern does not have, such as add's alpha.
        if self._keywords is not None and _keywords(match.nodes) - self._keywords:
            return False
        return bool(self._extra_check(match))

    def _checked(self, replace_fn, args, results):
        """Checks `results` against those of the replaced part."""
        outputs = [n for n in self._match.output_nodes() if n is not None]
        wanted = pytree.tree_leaves([n.meta["val"] for n in outputs])
        given = pytree.tree_leaves(results)
        what = f"register_replacement: {_named(replace_fn)}"
        # A joint graph's part also gives the gradients, which replace_fn does not return.
        refuse_others(what, given, wanted[: len(given)] if self.is_joint else wanted)
        if self.is_joint:
            return results
        leaves, spec = pytree.tree_flatten(results)
        inputs = [a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
        nodes = pytree.tree_leaves((self._match.args, self._match.kwargs))
        sources = [n.meta.get("val") for n in nodes if isinstance(n, torch.fx.Node)]
        for i, (new, old) in enumerate(zip(leaves, wanted)):
            if not isinstance(new, torch.Tensor):
                continue
            if not _has_strides(new, old):
                leaves[i] = _with_strides(new, old)
            elif _shares(new, inputs) and not _shares(old, sources):
                leaves[i] = new.clone()  # callers may write what the operators gave
        return pytree.tree_unflatten(leaves, spec)


def _keywords(nodes) -> Counter:
    """How often each operator gets each keyword with another value than its default."""
    found: Counter = Counter()
    for node in nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            defaults = {a.name: a.default_value for a in node.target._schema.arguments}
            changed = (name for name, value in node.kwargs.items() if value != defaults.get(name))
            found.update((node.target, name) for name in changed)
    return found


def _has_strides(new: torch.Tensor, old: torch.Tensor) -> bool:
    pairs = zip(new.stride(), old.stride())
    return all(statically_known_true(a == b) for a, b in pairs)


def _with_strides(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """A copy with its dimensions in memory as those of `old`: later views were made for them."""
    found = compute_elementwise_output_logical_to_physical_perm(old)
    order = found[0] if isinstance(found, tuple) else found  # newer torch also says: ambiguous
    back = [order.index(d) for d in range(len(order))]
    dense = new.permute(order).clone(memory_format=torch.contiguous_format)
    return dense.permute(back)


def _shares(value: torch.Tensor, others: Iterable[Any]) -> bool:
    place = value.untyped_storage()._cdata
    return any(
        isinstance(o, torch.Tensor) and o is not value and o.untyped_storage()._cdata == place
        for o in others
    ) or any(o is value for o in others)


def registrar(patterns: Patterns) -> Callable:
    """The function `register_replacement` of one package."""

    def register_replacement(
        search_fn,
        replace_fn,
        example_inputs,
        trace_fn=fwd_only,
        extra_check=_return_true,
        search_fn_pattern=None,
        scalar_workaround=None,
        skip_duplicates=False,
    ) -> None:
        """Replaces what `search_fn` computes by what `replace_fn` computes, in every graph that is
        compiled from now on. `example_inputs` are for tracing; their sizes do not matter."""
        patterns.register(
            search_fn, replace_fn, example_inputs, trace_fn, extra_check, search_fn_pattern,
            scalar_workaround, skip_duplicates,
        )  # fmt: skip

    return register_replacement


REGISTERED = {name: Patterns(name) for name in ("torchair", "npugraph_ex")}
