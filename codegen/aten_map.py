# SPDX-License-Identifier: Apache-2.0
"""C++ adapters for elementwise entries with `kind:`.

    native_<n>.cpp     one function per overload: fast path, meta and driver, CPU rung
    native_table.cpp   all of them, for src/aten/ops/install.cpp

Every overload of a group becomes one function: functional, in-place and out differ in where the
result lies. Shapes and dtypes come from PyTorch's structured meta (StructuredOp, structured.h);
operators without one are listed here with the rule their iterator follows (MapRule, map.h).
"""

from __future__ import annotations

from aten_model import Operator, Pack, Source
from aten_torch import TorchOps
from aten_unboxed import cpu_function, header_of
from torchgen.api import cpp, structured
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, SchemaKind

MADE_BY = "// Made by codegen/aten_map.py. Do not edit: change ops/aten/*.yaml."
MAP_KINDS = ("unary", "unary_with", "binary", "compare", "ternary")
SHARDS = 4
IMPL_SHARDS = 2  # of aten_impl.py
FORMS = {
    SchemaKind.functional: ("kFunctional", ""),
    SchemaKind.inplace: ("kInplace", "_inplace"),
    SchemaKind.out: ("kOut", "_into"),
}
# Codes whose result is bool for floating point operands.
BOOLS = ("signbit", "isposinf", "isneginf", "isinf", "isnan", "logical_not")
BOOLS += ("logical_and", "logical_or", "logical_xor")
# Codes whose meta checks more than dtypes and sizes.
CHECKED = ("polygamma", "complex", "polar")
# What PyTorch's CPU kernel checks and its meta does not, by base name; where the test fails, the
# CPU is called and says so.
KERNEL_CHECKS = {"softshrink": "lambd.toDouble() >= 0"}
# Operators without a structured meta, by base name: (rule, floating point operands only).
RULES = {
    "__lshift__": ("kBinary", False),
    "__rshift__": ("kBinary", False),
    "abs": ("kUnary", True),
    "angle": ("kFloat", True),
    "conj_physical": ("kUnary", False),
    "deg2rad": ("kFloat", True),
    "floor_divide": ("kBinary", False),
    "hardswish": ("kUnary", True),
    "hardswish_backward": ("kBinary", True),
    "hardtanh": ("kUnary", True),
    "hardtanh_backward": ("kBinary", True),
    "isinf": ("kBool", True),
    "isnan": ("kBool", True),
    "logical_and": ("kCompare", False),
    "logical_not": ("kBool", False),
    "logical_or": ("kCompare", False),
    "logical_xor": ("kCompare", False),
    "logit": ("kFloat", True),
    "nan_to_num": ("kUnary", True),
    "rad2deg": ("kFloat", True),
    "relu": ("kUnary", True),
    "rsub": ("kBinary", True),
}


def is_structured(operator: Operator) -> bool:
    return operator.structured and operator.group.out.structured_inherits == "TensorIteratorBase"


def rule_of(operator: Operator) -> tuple[str, bool] | None:
    return RULES.get(operator.primary.func.name.name.base)


def is_exported(torch: TorchOps, function: NativeFunction) -> bool:
    return str(function.func.name) in torch.cpu


def serves(operator: Operator) -> bool:
    return (
        operator.mapping is not None
        and operator.mapping.kind.name in MAP_KINDS
        and (is_structured(operator) or rule_of(operator) is not None)
    )


def code_name(operator: Operator, code: str) -> str:
    return f"NPU_{operator.mapping.kind.name.upper()}_{code.upper()}"


def meta_argument(name: str, type_: str) -> str:
    """As a meta function takes it: optional ones by reference."""
    if type_ == "Tensor?":
        return f"as_ref({name})"
    if type_ == "Scalar?":
        return f"{name} ? at::OptionalScalarRef(*{name}) : at::OptionalScalarRef()"
    return name


class Adapter:
    """One overload."""

    def __init__(self, operator: Operator, function: NativeFunction, exported: bool):
        self.operator, self.function, self.exported = operator, function, exported
        self.mapping = operator.mapping
        self.form, suffix = FORMS[function.func.kind()]
        self.overload = str(function.func.name)
        self.base = function.func.name.name.base
        self.name = "_".join(x for x in (self.base, function.func.name.overload_name) if x) + suffix
        self.arguments = {a.name: a for a in function.func.arguments.flat_non_out}
        with native_function_manager(function):
            group = CppSignatureGroup.from_native_function(
                function, method=False, fallback_binding=False
            )
            self.signature = group.faithful_signature or group.signature
            self.parameters = [(a.type, a.name) for a in self.signature.arguments()]
            self.returns = cpp.returns_type(function.func.returns, symint=False).cpp_type()

    # ---- parts -------------------------------------------------------------------

    def is_type(self, source: Source, type_: str) -> bool:
        argument = self.arguments.get(source.argument)
        return argument is not None and str(argument.type) == type_

    def input(self, source: Source) -> str:
        """An entry of MapInputs."""
        if source.absent:
            return "&kUndefined"
        if self.is_type(source, "Tensor"):
            return f"&{source.argument}"
        if self.is_type(source, "Tensor?"):
            return f"&or_undefined({source.argument})"
        return "nullptr"

    def inputs(self) -> str:
        return "{" + ", ".join(self.input(s) for s in self.mapping.ins) + "}"

    def scalars(self) -> list[str]:
        return [s.argument for s in self.mapping.attrs if s.argument]

    def attrs(self) -> list[str]:
        if not self.mapping.kind.attrs:
            return ["  const MapAttrs given;"]
        lines = [f"  npu_{self.mapping.kind.name}_attrs attrs{{}};"]
        for attr, source in zip(self.mapping.kind.attrs, self.mapping.attrs):
            if source.argument:
                lines.append(f"  attrs.{attr.name} = number({source.argument});")
            elif source.constant is not None:
                value = str(source.constant)
                value = value.lower() if isinstance(source.constant, bool) else value
                lines.append(f"  attrs.{attr.name} = number(c10::Scalar({value}));")
        return [*lines, "  const MapAttrs given = as_attrs(attrs);"]

    def sites(self) -> list[str]:
        kind = f"NPU_KIND_{self.mapping.kind.name.upper()}"
        rows = [
            f'      {{"aten::{self.overload}", {kind}, {code_name(self.operator, code)}}},'
            for code in self.mapping.all_codes
        ]
        lines = ["  static NativeSite sites[] = {", *rows, "  };"]
        if not self.mapping.chosen_by:
            return [*lines, "  NativeSite& site = sites[0];"]
        name = self.mapping.chosen_by
        lines.append(f"  const int chosen = {self.choice(name)};")
        return [*lines, "  NativeSite& site = sites[chosen < 0 ? 0 : chosen];"]

    def choice(self, name: str) -> str:
        codes = self.mapping.all_codes
        optional = str(self.arguments[name].type).endswith("?")
        text = "-1"
        for value, code in reversed(self.mapping.codes):
            if value is None:
                test = f"!{name}"
            elif isinstance(value, bool):
                test = name if value else f"!{name}"
            else:
                literal = f'"{value}"' if isinstance(value, str) else str(value)
                test = f"{name} && *{name} == {literal}" if optional else f"{name} == {literal}"
            text = f"{test} ? {codes.index(code)} : ({text})"
        return text

    def bools(self) -> bool:
        return self.mapping.kind.name == "compare" or self.mapping.code in BOOLS

    def fast_condition(self) -> str | None:
        """None: this overload has no fast path."""
        ins = [s for s in self.mapping.ins if not s.absent]
        if (
            self.form == "kOut"
            or (self.form == "kInplace" and self.bools())
            or any(code in CHECKED for code in self.mapping.all_codes)
            or not all(s.absent for s in self.mapping.outs[1:])
            or len(ins) != len(self.mapping.ins)
            or not all(self.is_type(s, "Tensor") for s in ins)
            or (self.form == "kInplace" and ins[0].argument != "self")
        ):
            return None
        scalars = self.scalars()
        tests = [f"is_plain({s})" for s in scalars if self.needs_plain(s)]
        if self.base in KERNEL_CHECKS:
            tests.append(KERNEL_CHECKS[self.base])
        optional = [s for s in scalars if str(self.arguments[s].type).endswith("?")]
        if len(optional) > 1:
            tests.append("(" + " || ".join(f"{s}.has_value()" for s in optional) + ")")
        if self.mapping.chosen_by:
            tests.append("chosen >= 0")
        return " && ".join(tests)

    def needs_plain(self, name: str) -> bool:
        return str(self.arguments[name].type).startswith("Scalar")

    def meta_call(self) -> str:
        with native_function_manager(self.operator.group):
            arguments = [a.name for a in structured.meta_arguments(self.operator.group)]
        texts = [meta_argument(n, str(self.arguments[n].type)) for n in arguments]
        return f"op.meta({', '.join(texts)});"

    def meta_class(self) -> str:
        with native_function_manager(self.operator.group):
            return f"at::meta::structured_{self.meta_name()}"

    def meta_name(self) -> str:
        name = self.operator.group.functional.func.name
        return "_".join(x for x in (str(name.name), name.overload_name) if x)

    # ---- the function --------------------------------------------------------------

    def written(self) -> str:
        """The tensor an in-place or out form returns."""
        return "self" if self.form == "kInplace" else self.function.func.arguments.out[0].name

    def fast_lines(self) -> list[str]:
        condition = self.fast_condition()
        if condition is None:
            return []
        bools = "true" if self.bools() else "false"
        out = "made" if self.form == "kFunctional" else "self"
        call = f"run_map_fast(site, {out}, {self.inputs()}, given, {bools})"
        test = f"{condition} && {call}" if condition else call
        lines = ["  at::Tensor made;"] if self.form == "kFunctional" else []
        return [*lines, f"  if ({test}) {{", f"    return {out};", "  }"]

    def why_lines(self) -> list[str]:
        wants = [self.input(s) for s in self.mapping.ins if self.input(s) != "nullptr"]
        if self.form == "kOut":
            wants.append(f"&{self.written()}")
        why = f"site.wants_all({{{', '.join(wants)}}})"
        if self.mapping.chosen_by:
            why = f"chosen < 0 ? npu_reason{{NPU_REASON_ATTRIBUTE}} : {why}"
        lines = [f"  npu_reason why = {why};"]
        if self.base in KERNEL_CHECKS:
            lines += [
                f"  if (!({KERNEL_CHECKS[self.base]})) {{",
                "    why = NPU_REASON_ATTRIBUTE;",
                "  }",
            ]
        if not is_structured(self.operator) and rule_of(self.operator)[1]:
            first = self.mapping.ins[0].argument
            lines += [
                f"  if (!{first}.is_floating_point()) {{",
                "    why = NPU_REASON_DTYPE;",
                "  }",
            ]
        return lines

    def structured_lines(self) -> list[str]:
        functional = self.form == "kFunctional"
        give = [] if functional else [f"    op.outputs.give(0, {self.written()});"]
        finish = [] if functional else ["      op.outputs.finish();"]
        result = "op.outputs.take(0)" if functional else self.written()
        return [
            f"    StructuredOp<{self.meta_class()}> op(Outputs::Form::{self.form});",
            *give,
            f"    {self.meta_call()}",
            f"    why = run_map(site, op, {self.inputs()}, given);",
            "    if (why == NPU_REASON_NONE) {",
            *finish,
            f"      return {result};",
            "    }",
        ]

    def iterator_lines(self) -> list[str]:
        functional = self.form == "kFunctional"
        into = "at::Tensor()" if functional else self.written()
        rule = f"MapRule::{rule_of(self.operator)[0]}"
        return [
            f"    at::TensorIterator iter = map_iterator({rule}, {into}, {self.inputs()});",
            f"    why = run_map(site, iter, {self.inputs()}, given);",
            "    if (why == NPU_REASON_NONE) {",
            f"      return {'iter.output(0)' if functional else self.written()};",
            "    }",
        ]

    def cpu_lines(self) -> list[str]:
        arguments = ", ".join(n for _, n in self.parameters)
        if self.exported:
            name, signature = cpu_function(self.function)
            return [
                f"  using Cpu = {signature};",
                f"  return site.cpu(why, static_cast<Cpu*>(&at::cpu::{name}), {arguments});",
            ]
        if self.form == "kFunctional":
            return [f"  return site.cpu_boxed<at::Tensor>(why, {arguments});"]
        return [
            f"  site.cpu_boxed<at::Tensor>(why, {arguments});",
            f"  return {self.written()};",
        ]

    def text(self) -> str:
        inside = self.structured_lines() if is_structured(self.operator) else self.iterator_lines()
        lines = [
            f"// {self.function.func}",
            f"{self.returns} {self.name}({', '.join(f'{t} {n}' for t, n in self.parameters)}) {{",
            *self.sites(),
            *self.attrs(),
            *self.fast_lines(),
            *self.why_lines(),
            "  if (why == NPU_REASON_NONE) {",
            *inside,
            "  }",
            *self.cpu_lines(),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def row(self) -> str:
        name, _, overload = self.overload.partition(".")
        return f'    native_row("aten::{name}", "{overload}", &{self.name}),'


def shard_text(number: int, adapters: list[Adapter]) -> str:
    headers = set()
    for adapter in adapters:
        if is_structured(adapter.operator):
            headers.add(f"<ATen/ops/{adapter.operator.group.functional.root_name}_meta.h>")
        if adapter.exported:
            headers.add(header_of(adapter.function))
    includes = "\n".join(f"#include {h}" for h in sorted(headers))
    functions = "\n".join(adapter.text() for adapter in adapters)
    rows = "\n".join(adapter.row() for adapter in adapters)
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/ops/map/map.h"
#include "aten/ops/register.h"
#include "npu/kinds.h"

{includes}

namespace npu {{
namespace {{

{functions}
const ladder::UnboxedRow kRows[] = {{
{rows}
}};

}}  // namespace
ladder::UnboxedRows native_rows_{number}() {{
  return {{kRows, sizeof(kRows) / sizeof(kRows[0])}};
}}
}}  // namespace npu
"""


def table_text(shards: int, impl_shards: int) -> str:
    names = [f"native_rows_{i}()" for i in range(shards)]
    names += [f"impl_rows_{i}()" for i in range(impl_shards)]
    declared = "\n".join(f"ladder::UnboxedRows {name};" for name in names)
    listed = ", ".join(names)
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/ops/register.h"

namespace npu {{
{declared}
std::vector<ladder::UnboxedRows> native_rows() {{
  return {{{listed}}};
}}
}}  // namespace npu
"""


def emit(pack: Pack, torch: TorchOps) -> dict[str, str]:
    adapters = [
        Adapter(operator, function, is_exported(torch, function))
        for operator in pack.generated()
        if serves(operator)
        for function in operator.functions
    ]
    made = {"native_table.cpp": table_text(SHARDS, IMPL_SHARDS)}
    for i in range(SHARDS):
        # An operator's forms stay together: they share a meta class.
        part = [a for k, a in enumerate(adapters) if k * SHARDS // max(len(adapters), 1) == i]
        made[f"native_{i}.cpp"] = shard_text(i, part)
    return made
