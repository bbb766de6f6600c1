# SPDX-License-Identifier: Apache-2.0
"""Whether calls of an operator go into the graph: the one predicate of report and strict compile.

With a profile it is about the imitated chip: what Ascend's TorchAir converts
(torch_npu/data/profiles/converters). Without one it is about this engine: whether the driver
computes the operator, or it runs as an island on the CPU.
"""

import functools
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


def of(target) -> tuple[str, str]:
    """(type, status) of a node's target, in the report's words."""
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


@functools.cache
def _listed(name: str) -> dict[str, str] | None:
    """{operator: status} of the chip's converters; None where there is no such list."""
    import torch_npu

    folder = Path(torch_npu.__file__).parent / "data" / "profiles" / "converters"
    file = folder / f"{Path(name).stem}.txt"
    if not name or not file.is_file():
        return None
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
    if isinstance(target, torch._ops.HigherOrderOperator):
        return NOT_REGISTERED
    if not isinstance(target, torch._ops.OpOverload):
        return UNKNOWN
    from torch_npu import _C

    name = f"{target._schema.name}.{target._schema.overload_name}".removesuffix(".")
    rows = [row for row in _C._explain_operator(name) if row["overload"] == name]
    if rows:
        return NOT_IMPLEMENTED if any(row["falls_back"] for row in rows) else SUPPORTED
    has = torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "PrivateUse1")
    return SUPPORTED if has else NOT_REGISTERED


def unsupported(module: torch.fx.GraphModule) -> dict[str, tuple[str, int]]:
    """{target: (status, calls)} of the calls that leave the engine."""
    found: dict[str, tuple[str, int]] = {}
    for node in module.graph.nodes:
        if node.op == "call_function":
            verdict = of(node.target)[1]
            if verdict not in (SUPPORTED, PARTIAL):
                calls = found.get(str(node.target), (verdict, 0))[1]
                found[str(node.target)] = (verdict, calls + 1)
    return found


def refuse_unsupported(module: torch.fx.GraphModule) -> None:
    found = unsupported(module)
    if found:
        lines = [
            f"  {name}: {ENGLISH[verdict]}, {calls} call{'s' * (calls > 1)}"
            for name, (verdict, calls) in found.items()
        ]
        raise NotImplementedError(
            f"torchair: strict compile: {len(found)} operators are not taken into the graph "
            f"(profile: {profile() or 'none'}):\n" + "\n".join(lines)
        )
