# SPDX-License-Identifier: Apache-2.0
"""Whether a call goes into the graph: the one predicate of reports and strict compile.

With a profile it is about the imitated chip: what Ascend's TorchAir converts
(torch_npu/data/profiles/converters), operator by operator. Without one it is about this engine, call
by call: whether the device computes it, or it leaves the device for the CPU or for Python.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import torch

SUPPORTED = "已支持"
PARTIAL = "部分支持"
NOT_IMPLEMENTED = "未实现"
NOT_REGISTERED = "未注册"
UNKNOWN = "未知状态，请查看源码"

# In words, for reports in English.
ENGLISH = {
    SUPPORTED: "supported",
    PARTIAL: "partially supported",
    NOT_IMPLEMENTED: "not implemented",
    NOT_REGISTERED: "not registered",
    UNKNOWN: "unknown",
}
_FAR = {"all": SUPPORTED, "some": PARTIAL, "none": NOT_IMPLEMENTED}


@dataclass(frozen=True)
class Verdict:
    kind: str  # of the target, in the report's words
    status: str
    reason: str = ""  # why not, where this engine was asked


def of_call(node) -> Verdict:
    """What becomes of one call of a graph."""
    kind, status = of(node.target)
    if status != _ASKED:
        return Verdict(kind, status)
    from torchair import _probe

    inside, reason = _probe.computes(node)
    if inside is None:
        return Verdict(kind, UNKNOWN, reason)
    return Verdict(kind, SUPPORTED if inside else NOT_IMPLEMENTED, reason)


def joined(one: str, other: str) -> str:
    """The status of an operator with calls of both."""
    if one == other:
        return one
    return PARTIAL if {one, other} & {SUPPORTED, PARTIAL} else UNKNOWN


# The driver has to be asked about each call.
_ASKED = "asked"


def of(target) -> tuple[str, str]:
    """(kind, status) of a target, as far as it does not depend on the call."""
    from torch._dynamo.trace_rules import is_builtin_callable

    python = getattr(target, "__module__", None) in ("builtins", "math", "operator", "_operator")
    if python or is_builtin_callable(target):
        return "builtin", SUPPORTED
    return ("prims" if "prim" in str(target) else "aten"), status(target)


def status(target) -> str:
    from torchair import _converters

    if _converters.find(target) is not None:
        return SUPPORTED
    listed = _listed(profile())
    return _own(target) if listed is None else _chip(target, listed)


def profile() -> str:
    from torch_npu import _C

    return _C._profile_name()


def chip() -> str:
    """The imitated chip whose converters are known; empty: verdicts are about this engine."""
    return profile() if _listed(profile()) is not None else ""


@functools.cache
def _listed(name: str) -> dict[str, str] | None:
    """{operator: status} of the chip's converters; None where there is no such list."""
    import torch_npu

    folder = Path(torch_npu.__file__).parent / "data" / "profiles" / "converters"
    file = folder / f"{Path(name).stem}.txt"
    if not name:
        return None
    if not file.is_file():
        # One TorchAir serves all of Ascend's chips.
        shipped = (folder.parent / f"{name}.txt").is_file() and name.startswith("ascend")
        if not shipped:
            return None
        file = folder / "ascend910b.txt"
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {words[1]: _FAR[words[0]] for words in lines if words and words[0] in _FAR}


def _chip(target, listed: dict[str, str]) -> str:
    name = str(target)
    if name in listed:
        return listed[name]
    if isinstance(target, torch._ops.HigherOrderOperator):
        return listed.get(f"higher_order.{target.name()}", NOT_REGISTERED)
    if isinstance(target, torch._ops.OpOverload):
        known = target.namespace in ("aten", "prims")
        return NOT_IMPLEMENTED if known else NOT_REGISTERED
    return listed.get(f"torch.{getattr(target, '__name__', '')}", UNKNOWN)


def _own(target) -> str:
    """A graph calls Python again at every run; on a device that is the CPU its kernels are native."""
    from torch_npu import _C

    from torchair import _probe
    from torchair._lower import is_users_python

    if isinstance(target, torch._ops.HigherOrderOperator):
        return NOT_REGISTERED
    if not isinstance(target, torch._ops.OpOverload):
        return UNKNOWN
    name = f"{target._schema.name}.{target._schema.overload_name}".removesuffix(".")
    has = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, name)
    twin = _C._twin()
    if is_users_python(target):
        return NOT_IMPLEMENTED if has("PrivateUse1") else NOT_REGISTERED
    if _probe.is_tried(target):
        return SUPPORTED if twin else _ASKED
    keys = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return SUPPORTED if any(map(has, (*keys, *[twin] * bool(twin)))) else NOT_REGISTERED


def unsupported(module: torch.fx.GraphModule) -> dict[str, tuple[Verdict, int]]:
    """{target: (verdict, calls)} of the calls that leave the engine."""
    found: dict[str, tuple[Verdict, int]] = {}
    for node in module.graph.nodes:
        if node.op == "call_function":
            verdict = of_call(node)
            if verdict.status not in (SUPPORTED, PARTIAL):
                first, calls = found.get(str(node.target), (verdict, 0))
                found[str(node.target)] = (first, calls + 1)
    return found


def refuse_unsupported(module: torch.fx.GraphModule, example_inputs) -> None:
    from torchair.fx_summary import settle_values

    settle_values(module, example_inputs)
    found = unsupported(module)
    if found:
        lines = [
            f"  {name}: {ENGLISH[verdict.status]}, {calls} call{'s' * (calls > 1)}"
            + (f": {verdict.reason}" if verdict.reason else "")
            for name, (verdict, calls) in found.items()
        ]
        raise NotImplementedError(
            f"torchair: strict compile: {len(found)} operators are not taken into the graph "
            f"(profile: {profile() or 'none'}):\n" + "\n".join(lines)
        )
