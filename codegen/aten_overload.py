# SPDX-License-Identifier: Apache-2.0
"""What the generated function of any overload has: name, types, sites, the CPU rung, its row.

`shard` puts functions and their rows into a file; each emitter adds what happens between.
"""

from __future__ import annotations

from aten_model import Operator
from aten_torch import TorchOps
from aten_unboxed import cpu_function, has_written_list, header_of
from kinds_model import Kind
from torchgen.api import cpp
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, SchemaKind

MADE_BY = "// Made by codegen/aten.py. Do not edit: change ops/aten/*.yaml."
FORMS = {
    SchemaKind.functional: ("kFunctional", ""),
    SchemaKind.mutable: ("kFunctional", ""),
    SchemaKind.inplace: ("kInplace", "_inplace"),
    SchemaKind.out: ("kOut", "_into"),
}


def meta_argument(name: str, type_: str) -> str:
    """As a meta function takes it: optional ones by reference."""
    if type_ == "Tensor?":
        return f"as_ref({name})"
    if type_ == "Scalar?":
        return f"{name} ? at::OptionalScalarRef(*{name}) : at::OptionalScalarRef()"
    return name


def literal(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Overload:
    """One overload of an entry."""

    def __init__(self, operator: Operator, function: NativeFunction, torch: TorchOps):
        self.operator, self.function = operator, function
        self.exported = str(function.func.name) in torch.cpu and not has_written_list(function)
        self.form, suffix = FORMS[function.func.kind()]
        self.overload = str(function.func.name)
        name = function.func.name
        self.name = "_".join(x for x in (name.name.base, name.overload_name) if x) + suffix
        self.arguments = {a.name: a for a in function.func.arguments.flat_non_out}
        self.types = {a.name: str(a.type) for a in function.func.arguments.flat_all}
        self.outs = [a.name for a in function.func.arguments.out]
        if self.form == "kInplace":
            self.outs = ["self"] if self.types["self"] == "Tensor" else []
        with native_function_manager(function):
            group = CppSignatureGroup.from_native_function(
                function, method=False, fallback_binding=False
            )
            signature = group.faithful_signature or group.signature
            self.parameters = [(a.type, a.name) for a in signature.arguments()]
            self.returns = cpp.returns_type(function.func.returns, symint=False).cpp_type()

    # ---- sites ---------------------------------------------------------------------

    def code_name(self, code: str, kind: Kind | None = None) -> str:
        name = (kind or self.operator.kind).name
        return f"NPU_{name.upper()}_{code.upper()}" if code else "0"

    def sites(self) -> list[str]:
        """A site for each code; `site` is the one of this call, `chosen` < 0 where there is none."""
        kind = f"NPU_KIND_{self.operator.kind.name.upper()}"
        codes = self.operator.all_codes
        name = f'"{self.function.namespace}::{self.overload}"'
        if len(codes) == 1 and not self.chosen_by():
            return [f"  static NativeSite site({name}, {kind}, {self.code_name(codes[0])});"]
        rows = [f"      {{{name}, {kind}, {self.code_name(code)}}}," for code in codes]
        return [
            "  static NativeSite sites[] = {",
            *rows,
            "  };",
            f"  const int chosen = {self.choice()};",
            "  NativeSite& site = sites[chosen < 0 ? 0 : chosen];",
        ]

    def chosen_by(self) -> str:
        mapping = self.operator.mapping
        return mapping.chosen_by if mapping is not None else self.operator.chosen_by

    def choice(self) -> str:
        name = self.chosen_by()
        mapping = self.operator.mapping
        rows = mapping.codes if mapping is not None else self.operator.codes
        codes = self.operator.all_codes
        optional = str(self.arguments[name].type).endswith("?")
        text = "-1"
        for value, code in reversed(rows):
            if value is None:
                test = f"!{name}"
            elif isinstance(value, bool):
                test = name if value else f"!{name}"
            else:
                word = f'"{value}"' if isinstance(value, str) else str(value)
                test = f"{name} && *{name} == {word}" if optional else f"{name} == {word}"
            text = f"{test} ? {codes.index(code)} : ({text})"
        return text

    # ---- whether to try ------------------------------------------------------------

    def tensor(self, name: str) -> str:
        return f"&or_undefined({name})" if self.types[name] == "Tensor?" else f"&{name}"

    def wants(self, names: list[str]) -> str:
        if not names:
            return "npu_reason{NPU_REASON_NONE}"
        return f"site.wants_all({{{', '.join(self.tensor(n) for n in names)}}})"

    def why_lines(self, names: list[str]) -> list[str]:
        """`why`, from the driver's wishes and the entry's own conditions."""
        why = self.wants(names)
        if self.operator.options.anyway:
            anyway = " && ".join(p.text for p in self.operator.options.anyway)
            why = f"{anyway} ? npu_reason{{NPU_REASON_NONE}} : {why}"
        if self.chosen_by():
            why = f"chosen < 0 ? npu_reason{{NPU_REASON_ATTRIBUTE}} : {why}"
        lines = [f"  npu_reason why = {why};"]
        for reason, predicates in self.operator.options.checks:
            holds = " && ".join(p.text for p in predicates)
            lines += [
                f"  if (why == NPU_REASON_NONE && !({holds})) {{",
                f"    why = NPU_REASON_{reason.upper()};",
                "  }",
            ]
        return lines

    # ---- the CPU rung --------------------------------------------------------------

    def composite_key(self) -> str:
        implicit = self.function.has_composite_implicit_autograd_kernel
        return "compositeimplicitautograd" if implicit else "compositeexplicitautograd"

    def cpu_lines(self) -> list[str]:
        arguments = ", ".join(n for _, n in self.parameters)
        name, signature = cpu_function(self.function)
        if self.operator.options.composite:
            return [f"  return at::{self.composite_key()}::{name}({arguments});"]
        own = self.operator.options.cpu
        if own and self.form == "kFunctional":
            return [f"  return {self.operator.cpp_namespace}::{own}(site, why, {arguments});"]
        if self.operator.options.cpu_results and self.form == "kFunctional":
            return self.changed_lines(name, signature, arguments)
        if self.exported:
            call = f"why, static_cast<Cpu*>(&at::cpu::{name}), {arguments}"
            other = ["  if (chosen < 0) {", f"    return site.cpu_without_code({call});", "  }"]
            return [
                f"  using Cpu = {signature};",
                *(other if self.chosen_by() else []),
                f"  return site.cpu({call});",
            ]
        if self.form == "kFunctional" or self.returns == "void":
            return [f"  return site.cpu_boxed<{self.returns}>(why, {arguments});"]
        return [f"  site.cpu_boxed<at::Tensor>(why, {arguments});", f"  return {self.outs[0]};"]

    def changed_lines(self, name: str, signature: str, arguments: str) -> list[str]:
        """What the CPU made, through the function of key 'cpu_results'."""
        call = f"site.cpu_boxed<{self.returns}>(why, {arguments})"
        if self.exported:
            call = f"site.cpu(why, static_cast<Cpu*>(&at::cpu::{name}), {arguments})"
        first = next(n for n, a in self.arguments.items() if str(a.type) == "Tensor")
        changed = f"{self.operator.cpp_namespace}::{self.operator.options.cpu_results}"
        using = [f"  using Cpu = {signature};"] if self.exported else []
        return [*using, f"  return {changed}({call}, {first});"]

    def headers(self) -> set[str]:
        if self.operator.options.composite:
            return {f"<ATen/ops/{self.function.root_name}_{self.composite_key()}_dispatch.h>"}
        return {header_of(self.function)} if self.exported else set()

    # ---- text ----------------------------------------------------------------------

    def result(self, taken: str) -> str:
        """What the function returns; `taken` gives output {i} of a functional form."""
        n = len(self.function.func.returns)
        if n == 0:
            return ""
        each = self.outs
        if self.form == "kFunctional":
            each = [taken.format(i=i) for i in range(n)]
        return each[0] if len(each) == 1 else f"{self.returns}({', '.join(each)})"

    def body(self) -> list[str]:
        raise NotImplementedError

    def text(self) -> str:
        lines = [
            f"// {self.function.func}",
            f"{self.returns} {self.name}({', '.join(f'{t} {n}' for t, n in self.parameters)}) {{",
            *self.body(),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def row(self) -> str:
        name, _, overload = self.overload.partition(".")
        return f'    native_row("aten::{name}", "{overload}", &{self.name}),'


def shard(rows_name: str, includes: list[str], overloads: list[Overload]) -> str:
    """A file of functions and the table `rows_name` of them."""
    headers = sorted({h for overload in overloads for h in overload.headers()})
    includes = "\n".join(f"#include {h}" for h in (*includes, *headers))
    functions = "\n".join(overload.text() for overload in overloads)
    rows = "\n".join(overload.row() for overload in overloads)
    table, size = "", "{nullptr, 0}"
    if overloads:
        table = f"const ladder::UnboxedRow kRows[] = {{\n{rows}\n}};\n"
        size = "{kRows, sizeof(kRows) / sizeof(kRows[0])}"
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/ops/register.h"
{includes}

namespace npu {{
namespace {{

{functions}
{table}
}}  // namespace
ladder::UnboxedRows {rows_name}() {{
  return {size};
}}
}}  // namespace npu
"""


def split(overloads: list[Overload], n: int) -> list[list[Overload]]:
    """Into n runs of about one length: an operator's forms stay together, they share a meta class."""
    parts: list[list[Overload]] = [[] for _ in range(n)]
    for i, overload in enumerate(overloads):
        parts[i * n // len(overloads)].append(overload)
    return parts
