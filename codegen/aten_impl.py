# SPDX-License-Identifier: Apache-2.0
"""C++ adapters for entries with `kind:` and `impl:`: PyTorch's structured meta, a frame filled by hand.

    impls.h         npu_reason <impl>(NativeSite&, ...): what is to be defined by hand
    impl_<n>.cpp    one function per overload: meta, the hand-written function, CPU rung

Outputs come last and are ready: made, resized or checked, with the strides the meta asked for. A
function that fills no frame for a call (an empty output, say) may answer NPU_REASON_NONE all the
same, once the outputs hold what they should.
"""

from __future__ import annotations

from aten_map import FORMS, IMPL_SHARDS, MADE_BY, is_exported, meta_argument
from aten_model import Operator, Pack
from aten_torch import TorchOps
from aten_unboxed import cpu_function, header_of
from torchgen.api import cpp, structured
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction

HEADER = "impls.h"


def impl_parameters(operator: Operator) -> list[tuple[str, str]]:
    with native_function_manager(operator.group):
        return [(a.type, a.name) for a in structured.impl_arguments(operator.group)]


def declaration(operator: Operator) -> str:
    rest = "".join(f", {t} {n}" for t, n in impl_parameters(operator))
    return f"// {operator.primary.func.name} ({operator.where})\nnpu_reason {operator.impl}(npu::NativeSite& site{rest});"


def header_text(operators: list[Operator]) -> str:
    spaces: dict[str, dict[str, None]] = {}
    for operator in operators:
        spaces.setdefault(operator.cpp_namespace, {})[declaration(operator)] = None
    blocks = "\n".join(
        f"namespace {space} {{\n" + "\n".join(lines) + f"\n}}  // namespace {space}\n"
        for space, lines in spaces.items()
    )
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>

#include "aten/ladder/native.h"

{blocks}"""


class Adapter:
    """One overload."""

    def __init__(self, operator: Operator, function: NativeFunction):
        self.operator, self.function = operator, function
        self.form, suffix = FORMS[function.func.kind()]
        name = function.func.name
        self.name = "_".join(x for x in (name.name.base, name.overload_name) if x) + suffix
        self.outs = [a.name for a in function.func.arguments.out]
        if self.form == "kInplace":
            self.outs = ["self"]
        with native_function_manager(function):
            group = CppSignatureGroup.from_native_function(
                function, method=False, fallback_binding=False
            )
            signature = group.faithful_signature or group.signature
            self.parameters = [(a.type, a.name) for a in signature.arguments()]
            self.returns = cpp.returns_type(function.func.returns, symint=False).cpp_type()
        self.types = {a.name: str(a.type) for a in function.func.arguments.flat_all}

    def wants(self) -> str:
        tensors = [f"&{n}" for n, t in self.types.items() if t == "Tensor"]
        if (
            any(t == "Tensor" and n not in self.outs for n, t in self.types.items())
            or self.form == "kInplace"
        ):
            return f"site.wants_all({{{', '.join(tensors)}}})"
        return "site.caps() != nullptr ? NPU_REASON_NONE : NPU_REASON_NO_KERNEL"

    def as_meta(self, name: str) -> str:
        return meta_argument(name, self.types.get(name, ""))

    def meta_lines(self) -> list[str]:
        group = self.operator.group
        with native_function_manager(group):
            arguments = ", ".join(self.as_meta(a.name) for a in structured.meta_arguments(group))
        name = group.functional.func.name
        class_ = "_".join(x for x in (str(name.name), name.overload_name) if x)
        keep = "const auto settled = " if group.out.precomputed else ""
        return [
            f"    StructuredOp<at::meta::structured_{class_}> op(Outputs::Form::{self.form});",
            *(
                []
                if self.form == "kFunctional"
                else [f"    op.outputs.give({i}, {n});" for i, n in enumerate(self.outs)]
            ),
            f"    {keep}op.meta({arguments});",
        ]

    def impl_call(self) -> str:
        group = self.operator.group
        settled = set()
        if group.out.precomputed:
            for replaced in group.out.precomputed.replace.values():
                settled |= {a.name for a in replaced}
            settled |= {a.name for a in group.out.precomputed.add or []}
        n_out = len(group.out.func.arguments.out)
        texts = ["site"]
        parameters = [n for _, n in impl_parameters(self.operator)]
        for name in parameters[: len(parameters) - n_out]:
            texts.append(f"settled.{name}" if name in settled else self.as_meta(name))
        texts += [f"op.outputs.at({i})" for i in range(n_out)]
        return f"{self.operator.cpp_namespace}::{self.operator.impl}({', '.join(texts)})"

    def result(self) -> str:
        if self.form != "kFunctional":
            one = ", ".join(self.outs)
            return one if len(self.outs) == 1 else f"{self.returns}({one})"
        n = len(self.function.func.returns)
        taken = ", ".join(f"op.outputs.take({i})" for i in range(n))
        return taken if n == 1 else f"{self.returns}({taken})"

    def text(self) -> str:
        kind = self.operator.kind.name.upper()
        code = f"NPU_{kind}_{self.operator.code.upper()}" if self.operator.code else "0"
        name, signature = cpu_function(self.function)
        arguments = ", ".join(n for _, n in self.parameters)
        lines = [
            f"// {self.function.func}",
            f"{self.returns} {self.name}({', '.join(f'{t} {n}' for t, n in self.parameters)}) {{",
            f'  static NativeSite site("aten::{self.function.func.name}", NPU_KIND_{kind}, {code});',
            f"  npu_reason why = {self.wants()};",
            "  if (why == NPU_REASON_NONE) {",
            *self.meta_lines(),
            f"    why = {self.impl_call()};",
            "    if (why == NPU_REASON_NONE) {",
            "      op.outputs.finish();",
            f"      return {self.result()};",
            "    }",
            "  }",
            f"  using Cpu = {signature};",
            f"  return site.cpu(why, static_cast<Cpu*>(&at::cpu::{name}), {arguments});",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def row(self) -> str:
        name, _, overload = str(self.function.func.name).partition(".")
        return f'    native_row("aten::{name}", "{overload}", &{self.name}),'


def shard_text(number: int, adapters: list[Adapter]) -> str:
    headers = set()
    for adapter in adapters:
        headers.add(f"<ATen/ops/{adapter.operator.group.functional.root_name}_meta.h>")
        headers.add(header_of(adapter.function))
    includes = "\n".join(f"#include {h}" for h in sorted(headers))
    functions = "\n".join(adapter.text() for adapter in adapters)
    rows = "\n".join(adapter.row() for adapter in adapters)
    table = (
        f"const ladder::UnboxedRow kRows[] = {{\n{rows}\n}};\n\n}}  // namespace\n"
        f"ladder::UnboxedRows impl_rows_{number}() {{\n"
        "  return {kRows, sizeof(kRows) / sizeof(kRows[0])};\n}"
        if adapters
        else f"}}  // namespace\nladder::UnboxedRows impl_rows_{number}() {{\n  return {{nullptr, 0}};\n}}"
    )
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/ops/map/map.h"
#include "aten/ops/register.h"
#include "{HEADER}"
#include "npu/kinds.h"

{includes}

namespace npu {{
namespace {{

{functions}
{table}
}}  // namespace npu
"""


def emit(pack: Pack, torch: TorchOps) -> dict[str, str]:
    operators = pack.with_impl()
    adapters = [
        Adapter(operator, function)
        for operator in operators
        for function in operator.functions
        if is_exported(torch, function)
    ]
    made = {HEADER: header_text(operators)}
    for i in range(IMPL_SHARDS):
        part = [a for k, a in enumerate(adapters) if k * IMPL_SHARDS // max(len(adapters), 1) == i]
        made[f"impl_{i}.cpp"] = shard_text(i, part)
    return made
