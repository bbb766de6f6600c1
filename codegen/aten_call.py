# SPDX-License-Identifier: Apache-2.0
"""C++ adapters for entries with `impl:` or `attempt:`, and for entries whose kind is not elementwise.

    attempts/<file>.h   what ops/aten/<file>.yaml wants defined by hand: npu_reason <name>(NativeSite&, …)
    call_<n>.cpp        one function per overload: driver's wishes, outputs, frame, CPU rung

`impl`: PyTorch's structured meta settles the outputs, which come last and are ready. `attempt`: the
function gets Outputs and sets them. Both may answer NPU_REASON_NONE without a call, once the outputs
hold what they should. An entry with neither gets its frame from the mapping of aten_fit.py.
"""

from __future__ import annotations

import re

from aten_model import Operator, Pack, Source
from aten_overload import FORMS, MADE_BY, Overload, literal, meta_argument, shard, split
from aten_torch import TorchOps
from aten_unboxed import cpu_function
from torchgen.api import structured
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import SchemaKind

SHARDS = 3
CONSTANT_TYPES = {bool: "bool", int: "std::int64_t", float: "double"}
TENSOR = "const at::Tensor &"
OPTIONAL_TENSOR = re.compile(r"at::OptionalTensorRef|const ::std::optional<at::Tensor> ?&")


def folder_header(operator: Operator) -> str:
    return f"attempts/{operator.where.file.stem}.h"


def impl_parameters(operator: Operator) -> list[tuple[str, str]]:
    """As the meta function takes them, then the outputs."""
    with native_function_manager(operator.group):
        found = [(a.type, a.name) for a in structured.meta_arguments(operator.group)]
    outs = operator.group.out.func.arguments.out
    return found + [(TENSOR, a.name) for a in outs]


def handed(operator: Operator, parameters: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """C++ type and expression of what the function written by hand gets of `parameters`: those that
    key 'arguments' lists, or all. A tensor that may be absent comes as an undefined one."""
    types = {name: type_ for type_, name in parameters}
    listed = operator.options.arguments
    if listed is None:
        listed = [Source(argument=name) for name in types]
    found = []
    for item in listed:
        if item is None:
            found.append((TENSOR, "at::Tensor()"))
        elif not isinstance(item, Source):
            found.append((CONSTANT_TYPES[type(item)], literal(item)))
        else:
            found.append(as_handed(types[item.argument], item.argument))
    return found


def as_handed(type_: str, name: str) -> tuple[str, str]:
    """C++ type and expression of one argument for a function written by hand."""
    if OPTIONAL_TENSOR.fullmatch(type_):
        return TENSOR, f"or_undefined({name})"
    return (TENSOR if type_ == "at::Tensor &" else type_), name


class Call(Overload):
    """PyTorch's meta, then the driver."""

    def wanted(self) -> list[str]:
        """The tensors the driver is asked about: what the entry says, or inputs, then outputs."""
        if self.operator.options.wants is not None:
            return list(self.operator.options.wants)
        tensors = [n for n, a in self.arguments.items() if str(a.type) in ("Tensor", "Tensor?")]
        return tensors + [n for n in self.outs if n not in tensors]

    def as_meta(self, name: str) -> str:
        return meta_argument(name, self.types.get(name, ""))

    def meta_lines(self) -> list[str]:
        group = self.operator.group
        with native_function_manager(group):
            arguments = ", ".join(self.as_meta(a.name) for a in structured.meta_arguments(group))
        name = group.functional.func.name
        class_ = "_".join(x for x in (str(name.name), name.overload_name) if x)
        return [
            f"    StructuredOp<at::meta::structured_{class_}> op(Outputs::Form::{self.form});",
            *self.give("op.outputs"),
            f"    op.meta({arguments});",
        ]

    def give(self, outputs: str) -> list[str]:
        if self.form == "kFunctional":
            return []
        return [f"    {outputs}.give({i}, {n});" for i, n in enumerate(self.outs)]

    def sites(self) -> list[str]:
        more = [
            f'  static NativeSite {name}("aten::{self.overload}", '
            f"NPU_KIND_{kind.name.upper()}, {self.code_name(code, kind)});"
            for name, kind, code in self.operator.options.sites
        ]
        return [*super().sites(), *more]

    def all_sites(self) -> list[str]:
        return ["site", *(name for name, _, _ in self.operator.options.sites)]

    def constants(self) -> list[str]:
        return [literal(value) for _, value in self.operator.options.constants]

    def headers(self) -> set[str]:
        if self.operator.attempt:
            return super().headers()
        return super().headers() | {f"<ATen/ops/{self.operator.group.functional.root_name}_meta.h>"}

    def inside(self) -> list[str]:
        """Lines that set `why`, where the driver is to be tried."""
        raise NotImplementedError

    def outputs(self) -> str:
        return "op.outputs"

    def body(self) -> list[str]:
        outputs = self.outputs()
        finish = [] if self.form == "kFunctional" else [f"      {outputs}.finish();"]
        return [
            *self.sites(),
            *self.why_lines(self.wanted()),
            "  if (why == NPU_REASON_NONE) {",
            *self.inside(),
            "    if (why == NPU_REASON_NONE) {",
            *finish,
            f"      return {self.result(outputs + '.take({i})')};",
            "    }",
            "  }",
            *self.direct_lines(),
            *self.cpu_lines(),
        ]

    def direct_arguments(self) -> list[tuple[str, str]]:
        """C++ type and expression of what the function of key 'direct' gets: all arguments."""
        return [as_handed(t, n) for t, n in self.parameters if n in self.arguments]

    def direct_lines(self) -> list[str]:
        """The CPU kernel on the npu tensors themselves, where that is possible."""
        if not self.operator.options.direct or self.form != "kFunctional":
            return []
        tensors = [n for n, a in self.arguments.items() if str(a.type) in ("Tensor", "Tensor?")]
        inputs = ", ".join(self.tensor(n) for n in tensors)
        texts = ", ".join(["made", *(text for _, text in self.direct_arguments())])
        n_out = len(self.function.func.returns)
        outs = ", ".join(f"&made.at({i})" for i in range(n_out))
        function = f"{self.operator.cpp_namespace}::{self.operator.options.direct}"
        return [
            f"  if (host_device::DirectRun run(site.entry(), why, {{{inputs}}}); run) {{",
            "    Outputs made(Outputs::Form::kFunctional);",
            f"    if ({function}({texts})) {{",
            f"      run.finish({{{outs}}});",
            f"      return {self.result('made.take({i})')};",
            "    }",
            "  }",
        ]


class Impl(Call):
    def inside(self) -> list[str]:
        return [*self.meta_lines(), f"    why = {self.call()};"]

    def call(self) -> str:
        parameters = impl_parameters(self.operator)
        n_out = len(self.operator.group.out.func.arguments.out)
        texts = [*self.all_sites(), *self.constants()]
        texts += [self.as_meta(text) for _, text in handed(self.operator, parameters[:-n_out])]
        texts += [f"op.outputs.at({i})" for i in range(n_out)]
        return f"{self.operator.cpp_namespace}::{self.operator.impl}({', '.join(texts)})"


class Attempt(Call):
    def wanted(self) -> list[str]:
        # Outputs are the function's to judge: it may resize them.
        names = super().wanted()
        return [n for n in names if n in self.arguments]

    def outputs(self) -> str:
        return "outputs"

    def inside(self) -> list[str]:
        given = [(t, n) for t, n in self.parameters if n in self.arguments]
        arguments = [text for _, text in handed(self.operator, given)]
        texts = ", ".join([*self.all_sites(), "outputs", *self.constants(), *arguments])
        return [
            f"    Outputs outputs(Outputs::Form::{self.form});",
            *self.give("outputs"),
            f"    why = {self.operator.cpp_namespace}::{self.operator.attempt}({texts});",
        ]


class Mapped(Call):
    """The kind's operands and attributes straight from the arguments."""

    def operand(self, operand, source: Source) -> str:
        if source.absent:
            return "nullptr"
        if source.result >= 0:
            tensor = f"op.outputs.at({source.result})"
        else:
            tensor = source.argument
        return f"MaybeOperand({tensor})" if operand.optional else f"to_operand({tensor})"

    def attr_lines(self) -> list[str]:
        mapping = self.operator.mapping
        if not mapping.kind.attrs:
            return []
        lines = [f"    npu_{mapping.kind.name}_attrs attrs{{}};"]
        for attr, source in zip(mapping.kind.attrs, mapping.attrs):
            field = f"attrs.{attr.name}"
            for i, name in enumerate(source.arguments):
                lines.append(f"    set_attribute({field}[{i}], {name});")
            if source.argument:
                lines.append(f"    set_attribute({field}, {source.argument});")
            elif isinstance(source.constant, str):
                value = f"NPU_{mapping.kind.name}_{attr.name}_{source.constant}".upper()
                lines.append(f"    {field} = {value};")
            elif source.constant is not None:
                lines.append(f"    set_attribute({field}, {literal(source.constant)});")
        return lines

    def inside(self) -> list[str]:
        mapping = self.operator.mapping
        operands = [self.operand(o, s) for o, s in zip(mapping.kind.outs, mapping.outs)]
        operands += [self.operand(o, s) for o, s in zip(mapping.kind.ins, mapping.ins)]
        attrs = ["attrs"] if mapping.kind.attrs else []
        first = next(s.argument for s in mapping.ins if s.argument)
        return [
            *self.meta_lines(),
            *self.attr_lines(),
            "    if (op.outputs.at(0).numel() == 0) {",
            "      why = NPU_REASON_SIZE;",
            "    } else {",
            "      Call call = site.call();",
            f"      build::{mapping.kind.name}({', '.join(['call', *operands, *attrs])});",
            f"      why = site.run(call, {first}.device().index());",
            "    }",
        ]


# ---- what is to be defined by hand -------------------------------------------------------


def declaration(operator: Operator, torch: TorchOps) -> str:
    first = ["npu::NativeSite& site"]
    first += [f"npu::NativeSite& {name}" for name, _, _ in operator.options.sites]
    constants = [f"{CONSTANT_TYPES[type(v)]} {n}" for n, v in operator.options.constants]
    if operator.impl:
        parameters = impl_parameters(operator)
        n_out = len(operator.group.out.func.arguments.out)
        rest = [t for t, _ in handed(operator, parameters[:-n_out])] + [TENSOR] * n_out
    else:
        # In-place and functional forms differ in constness of self only.
        overload = min(
            (Attempt(operator, f, torch) for f in operator.functions),
            key=lambda o: o.form == "kInplace",
        )
        given = [(t, n) for t, n in overload.parameters if n in overload.arguments]
        first.append("npu::Outputs& outputs")
        rest = [t for t, _ in handed(operator, given)]
    name = operator.impl or operator.attempt
    return f"npu_reason {name}({', '.join([*first, *constants, *rest])});"


def predicate_declarations(operator: Operator) -> list[str]:
    """Those that only this file's adapters need."""
    function = operator.primary
    with native_function_manager(function):
        group = CppSignatureGroup.from_native_function(
            function, method=False, fallback_binding=False
        )
        types = {a.name: a.type for a in (group.faithful_signature or group.signature).arguments()}
    return [
        f"bool {p.name}({', '.join(as_handed(types[a], a)[0] for a in p.arguments)});"
        for p in operator.options.predicates
        if not p.shared
    ]


def direct_declaration(operator: Operator, torch: TorchOps) -> str:
    function = next(f for f in operator.functions if f.func.kind() == SchemaKind.functional)
    types = [t for t, _ in adapter(operator, function, torch).direct_arguments()]
    return f"bool {operator.options.direct}({', '.join(['npu::Outputs& outputs', *types])});"


def cpu_declaration(operator: Operator) -> str:
    function = next(f for f in operator.functions if FORMS[f.func.kind()][0] == "kFunctional")
    returns, _, arguments = cpu_function(function)[1].partition("(")
    return f"{returns} {operator.options.cpu}(npu::NativeSite& site, npu_reason why, {arguments};"


def changed_declaration(operator: Operator) -> str:
    function = next(f for f in operator.functions if FORMS[f.func.kind()][0] == "kFunctional")
    returns = cpu_function(function)[1].partition("(")[0]
    return f"{returns} {operator.options.cpu_results}({returns} made, const at::Tensor& first);"


def header_text(operators: list[Operator], torch: TorchOps) -> str:
    spaces: dict[str, dict[str, str]] = {}
    for operator in operators:
        texts = [declaration(operator, torch), *predicate_declarations(operator)]
        if operator.options.direct:
            texts.append(direct_declaration(operator, torch))
        if operator.options.cpu:
            texts.append(cpu_declaration(operator))
        if operator.options.cpu_results:
            texts.append(changed_declaration(operator))
        for text in texts:
            spaces.setdefault(operator.cpp_namespace, {}).setdefault(
                text, str(operator.primary.func.name)
            )
    blocks = "\n".join(
        f"namespace {space} {{\n"
        + "\n".join(f"// {name}\n{text}" for text, name in found.items())
        + f"\n}}  // namespace {space}\n"
        for space, found in spaces.items()
    )
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>

#include "aten/ladder/native.h"
#include "aten/ops/structured.h"

{blocks}"""


def adapter(operator: Operator, function, torch: TorchOps) -> Call:
    if operator.impl:
        return Impl(operator, function, torch)
    return (Attempt if operator.attempt else Mapped)(operator, function, torch)


def serves(operator: Operator) -> bool:
    """Whether a mapping of this kind can be called: shapes must come from somewhere."""
    return operator.structured and not operator.mapping.kind.lists


def emit(operators: list[Operator], pack: Pack, torch: TorchOps) -> dict[str, str]:
    """`operators`: those with a mapping that this emitter serves."""
    every = [*pack.framed(), *operators]
    overloads = [
        adapter(operator, function, torch) for operator in every for function in operator.functions
    ]
    made = {}
    for name in sorted({folder_header(o) for o in pack.framed()}):
        made[name] = header_text([o for o in pack.framed() if folder_header(o) == name], torch)
    for number, part in enumerate(split(overloads, SHARDS)):
        includes = ['"aten/host_device/direct.h"', '"aten/ops/op.h"', '"aten/ops/predicates.h"']
        includes += ['"driver/build_call.h"']
        includes += sorted(
            {f'"{folder_header(o.operator)}"' for o in part if not o.operator.mapping}
        )
        made[f"call_{number}.cpp"] = shard(f"call_rows_{number}", includes, part)
    return made
