# SPDX-License-Identifier: Apache-2.0
"""The kernels and gradients that rows of ops/npu/*.yaml ask for, beside the composition in Python.

      - func: npu_swiglu(Tensor input, int dim=-1) -> Tensor
        kind: swiglu                 # code, wants, arguments: as in ops/aten (aten_yaml.py)
        attempt: swiglu              # npu_reason swiglu(NativeSite&, Outputs&, const at::Tensor& input, …)
        boxed: true                  # npu_reason swiglu(NativeSite&, const Arguments&, Stack& results) instead
        absent: [rotate]             # arguments that the attempt does not take: the composition gets the call
        gradient:                    # without it PyTorch records the composition
          operator: npu_swiglu_backward
          arguments: {grad: grad0}   # of that operator, where names differ: grad0, result1, an argument,
                                     # x.size(0), x.dtype
          of: [input]                # the arguments that its results are the gradients of
          where: has_gradient        # bool has_gradient(const Arguments&): else the composition is recorded
      - func: …
        gradient:
          function: add_gradient     # variable_list add_gradient(const Stack& values), instead of an operator
          arguments: [grad0, {x: [y]}]   # its values, kept for it; x only where y wants a gradient
          of: [x, y]
          needs: npu_x_backward      # an operator it calls

Without key 'kind' the attempt asks no driver (no site). What an attempt declines goes to the composition.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import yaml
from aten_call import Attempt, handed
from aten_fit import Fit
from aten_model import Operator, Where
from aten_options import IDENTIFIER, read_options
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import Location, NativeFunction
from yaml_reader import Reader, near

KEYS = ("kind", "code", "attempt", "arguments", "wants", "absent", "boxed", "gradient")
GRADIENT_KEYS = ("operator", "function", "arguments", "of", "where", "needs")
NO_TORCH = SimpleNamespace(cpu=frozenset())
SOURCE = re.compile(r"(grad|result)(\d+)|(\w+)(?:\.(?:size\((\d+)\)|(dtype)))?")


@dataclasses.dataclass
class Gradient:
    operator: str
    function: str
    arguments: tuple[
        tuple[str, str, tuple[str, ...]], ...
    ]  # (name or "", source, for gradients of)
    of: tuple[str, ...]
    where: str
    needs: str
    line: str


@dataclasses.dataclass
class Kernel:
    function: NativeFunction
    operator: Operator | None  # None: a gradient only
    boxed: bool
    absent: tuple[str, ...]
    gradient: Gradient | None

    @property
    def cpp_name(self) -> str:
        return re.sub(r"\W", "_", str(self.function.func.name))

    @property
    def arguments(self) -> list[str]:
        return [a.name for a in self.function.func.arguments.flat_non_out]


# ---- reading --------------------------------------------------------------------------


def read_kernel(reader: Reader, fields: dict, namespace: str, schema: str) -> Kernel | None:
    """None where the row asks for none; problems go to the reader."""
    if not any(key in fields for key in KEYS):
        return None
    node = fields["func"][1]
    what = f"key 'custom': '{schema.partition('(')[0]}'"
    function = as_function(f"{namespace}::{schema}", Location(str(reader.path), reader.line(node)))
    boxed = "boxed" in fields and (
        reader.choice(fields["boxed"][1], f"{what}: key 'boxed'", ("true", "false")) == "true"
    )
    absent = names(reader, fields, "absent", what, function)
    operator = read_attempt(reader, fields, what, function) if "attempt" in fields else None
    if operator is None:
        for key in ("kind", "code", "arguments", "wants", "absent", "boxed"):
            if key in fields:
                reader.problem(fields[key][0], f"{what}: key '{key}' needs key 'attempt'.")
    gradient = read_gradient(reader, fields, what, function) if "gradient" in fields else None
    return Kernel(function, operator, boxed, absent, gradient)


def as_function(schema: str, where: Location) -> NativeFunction:
    # torchgen takes an operator with such an argument for a random one.
    entry = {"func": schema} | ({"tags": "nondeterministic_seeded"} if "dropout" in schema else {})
    return NativeFunction.from_yaml(entry, where, {"nondeterministic_seeded"})[0]


def names(reader: Reader, fields: dict, key: str, what: str, function) -> tuple[str, ...]:
    """Arguments of the operator that a key lists."""
    if key not in fields:
        return ()
    known = [a.name for a in function.func.arguments.flat_non_out]
    found = []
    for item in reader.sequence(fields[key][1], f"{what}: key '{key}'"):
        name = reader.text(item, f"{what}: key '{key}'")
        if name not in known:
            reader.problem(
                item,
                f"{what}: key '{key}': no argument '{name}'{near(name, known)}. "
                f"It has: {', '.join(known)}.",
            )
        found.append(name)
    return tuple(found)


def identifier(reader: Reader, fields: dict, key: str, what: str) -> str:
    if key not in fields:
        return ""
    node = fields[key][1]
    name = reader.text(node, f"{what}: key '{key}'")
    if not IDENTIFIER.fullmatch(name):
        reader.problem(node, f"{what}: key '{key}': '{name}' is not a name.")
    return name


def read_attempt(reader: Reader, fields: dict, what: str, function) -> Operator:
    kind, code, chosen_by, codes = None, "", "", ()
    if "kind" in fields:
        name = reader.text(fields["kind"][1], f"{what}: key 'kind'")
        kind = reader.kinds.get(name)
        if kind is None:
            reader.problem(
                fields["kind"][1],
                f"{what}: key 'kind': '{name}' is no kind of ops/kinds.yaml{near(name, reader.kinds)}.",
            )
        elif found := Fit(reader, fields, what, kind, function).only_code():
            code, chosen_by, codes = found
    return Operator(
        name=str(function.func.name),
        section="npu",
        cpp_namespace="npu::fused",
        functions=(function,),
        group=None,
        kind=kind,
        code=code,
        mapping=None,
        chosen_by=chosen_by,
        codes=codes,
        impl="",
        attempt=identifier(reader, fields, "attempt", what),
        options=read_options(reader, fields, what, function),
        uses=(),
        scalar_by_value=False,
        where=Where(reader.path, reader.line(fields["func"][1])),
    )


def read_gradient(reader: Reader, fields: dict, what: str, function) -> Gradient:
    node = fields["gradient"][1]
    what = f"{what}: key 'gradient'"
    given = reader.mapping(node, what)
    reader.known_keys(given, f"{what}: ", GRADIENT_KEYS)
    operator, called = (identifier(reader, given, key, what) for key in ("operator", "function"))
    if bool(operator) == bool(called):
        reader.problem(node, f"{what}: give key 'operator' or key 'function'.")
    arguments = []
    if "arguments" in given and operator:
        for key, value in reader.mapping(given["arguments"][1], f"{what}: 'arguments'").values():
            arguments.append((key.value, reader.text(value, what), ()))
    elif "arguments" in given:
        for item in reader.sequence(given["arguments"][1], f"{what}: key 'arguments'"):
            if isinstance(item, yaml.MappingNode):
                key, value = next(iter(reader.mapping(item, what).values()))
                wanted = tuple(reader.text(v, what) for v in reader.sequence(value, what))
                arguments.append(("", key.value, wanted))
            else:
                arguments.append(("", reader.text(item, what), ()))
    known = [a.name for a in function.func.arguments.flat_non_out]
    for _, source, wanted in arguments:
        match = SOURCE.fullmatch(source)
        for name in (*wanted, match[3] if match else source):
            if name and name not in known:
                reader.problem(
                    node,
                    f"{what}: '{source}' is no gradient, result or argument"
                    f"{near(name, known)}. Arguments: {', '.join(known)}.",
                )
    return Gradient(
        operator,
        called,
        tuple(arguments),
        names(reader, given, "of", what, function),
        identifier(reader, given, "where", what),
        operator or identifier(reader, given, "needs", what),
        f"{reader.path}:{reader.line(node)}",
    )


# ---- emitting -------------------------------------------------------------------------


def signature(function: NativeFunction) -> str:
    with native_function_manager(function):
        group = CppSignatureGroup.from_native_function(
            function, method=False, fallback_binding=False
        )
        return group.signature.ptr_type().replace(" (*)", "")


class Composed(Attempt):
    """The attempt, then the composition."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel.operator, kernel.function, NO_TORCH)
        self.kernel = kernel
        self.name = kernel.cpp_name

    def sites(self) -> list[str]:
        return super().sites() if self.operator.kind else []

    def all_sites(self) -> list[str]:
        return ["site"] if self.operator.kind else []

    def wants(self, names: list[str]) -> str:
        return super().wants(names if self.operator.kind and not self.kernel.boxed else [])

    def why_lines(self, names: list[str]) -> list[str]:
        lines = super().why_lines(names)
        if self.kernel.absent:
            given = " || ".join(self.is_given(name) for name in self.kernel.absent)
            lines += [f"  if ({given}) {{", "    why = NPU_REASON_ARGUMENTS;", "  }"]
        return lines

    def is_given(self, name: str) -> str:
        return f'args.has("{name}")' if self.kernel.boxed else f"{name}.has_value()"

    def cpu_lines(self) -> list[str]:
        arguments = ", ".join(["fused::kComposition", *(n for _, n in self.parameters)])
        return [
            f"  static const auto op = fused::typed<{signature(self.function)}>(",
            f'      "{self.function.namespace}::{self.overload}");',
            f"  return op.redispatch({arguments});",
        ]

    def declaration(self) -> str:
        site = ["npu::NativeSite& site"] if self.operator.kind else []
        if self.kernel.boxed:
            rest = ["const npu::custom::Arguments& args", "torch::jit::Stack& results"]
        else:
            given = [(t, n) for t, n in self.parameters if n in self.arguments]
            rest = ["npu::Outputs& out", *(t for t, _ in handed(self.operator, given))]
        return f"npu_reason {self.operator.attempt}({', '.join(site + rest)});"

    def text(self) -> str:
        if not self.kernel.boxed:
            return super().text()
        arguments = ", ".join([*self.all_sites(), "args", "results"])
        lines = [
            f"// {self.function.func}",
            f"void {self.name}(",
            "    const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {",
            *self.sites(),
            "  fused::run_boxed(op, stack, [](const auto& args, torch::jit::Stack& results) {",
            *(f"  {line}" for line in self.why_lines([])),
            f"    return why != NPU_REASON_NONE ? why : npu::fused::{self.operator.attempt}({arguments});",
            "  });",
            "}",
        ]
        return "\n".join(lines) + "\n"


def source_text(source: str, known: list[str], wanted: tuple[str, ...] = ()) -> str:
    match = SOURCE.fullmatch(source)
    if match[1]:
        return f"{{From::k{match[1].title()}, {match[2]}}}"
    index = known.index(match[3])
    if match[4]:
        return f"{{From::kSize, {index}, {match[4]}}}"
    if match[5]:
        return f"{{From::kDtype, {index}}}"
    bits = sum(1 << known.index(name) for name in wanted)
    return f"{{From::kArgument, {index}, 0, {bits}}}" if bits else f"{{From::kArgument, {index}}}"


def gradient_text(kernel: Kernel, schemas: dict[str, list[str]]) -> str:
    row, known = kernel.gradient, kernel.arguments
    if row.operator:
        given = {name: source for name, source, _ in row.arguments}
        sources = []
        for name in schemas[row.operator]:
            source = given.get(name, name if name in known else "")
            sources.append(source_text(source, known) if source else "{}")
    else:
        sources = [source_text(source, known, wanted) for _, source, wanted in row.arguments]
    results = 0
    for _, source, _ in row.arguments:
        if match := re.fullmatch(r"grad(\d+)", source):
            results |= 1 << int(match[1])
    operator = f'"npu::{row.operator}"' if row.operator else "nullptr"
    function = f"&npu::fused::{row.function}" if row.function else "nullptr"
    where = f"&npu::fused::{row.where}" if row.where else "nullptr"
    of = ", ".join(str(known.index(name)) for name in row.of)
    name = f"{kernel.function.namespace}::{kernel.function.func.name}"
    return (
        f"const custom::Gradient kGradient_{kernel.cpp_name}{{\n"
        f'    "{name}", {operator}, {function},\n'
        f"    {{{', '.join(sources)}}},\n    {{{of}}}, {results}, {where}}};\n"
    )


def install_text(kernel: Kernel, schemas: dict[str, list[str]]) -> str:
    """The functions of a row, and `kKernel_…` of the table."""
    made, lines = "", []
    if kernel.operator is not None:
        adapter = Composed(kernel)
        made += adapter.text() + "\n"
        function = (
            f"torch::CppFunction::makeFromBoxedFunction<&{kernel.cpp_name}>()"
            if kernel.boxed
            else f"TORCH_FN({kernel.cpp_name})"
        )
        lines.append(
            f"  library.impl(overload, torch::dispatch(c10::DispatchKey::PrivateUse1, {function}));"
        )
    row = "nullptr"
    if kernel.gradient is not None:
        made += gradient_text(kernel, schemas) + "\n"
        row = f"&kGradient_{kernel.cpp_name}"
    # What writes to its arguments has no gradient.
    if not any(a.annotation for a in kernel.function.func.arguments.flat_all):
        lines.append(f"  custom::install_gradient(library, overload, {row});")
    needs = f'"{kernel.gradient.needs}"' if kernel.gradient and kernel.gradient.needs else '""'
    body = "\n".join(lines)
    return f"""{made}void install_{kernel.cpp_name}(torch::Library& library, const char* overload) {{
{body}
}}
const custom::Kernel kKernel_{kernel.cpp_name}{{&install_{kernel.cpp_name}, {needs}}};
"""


def headers(kernels: list[Kernel]) -> dict[str, str]:
    """attempts/<file>.h: what a file of ops/npu wants written by hand."""
    made: dict[str, list[str]] = {}
    for kernel in kernels:
        stem = Path(kernel.function.loc.file).stem
        found = made.setdefault(f"attempts/{stem}.h", [])
        if kernel.operator is not None:
            found.append(Composed(kernel).declaration())
        if kernel.gradient and kernel.gradient.function:
            found.append(
                "torch::autograd::variable_list "
                f"{kernel.gradient.function}(const torch::jit::Stack& values);"
            )
        if kernel.gradient and kernel.gradient.where:
            found.append(f"bool {kernel.gradient.where}(const npu::custom::Arguments& args);")
    return {
        name: f"""// SPDX-License-Identifier: Apache-2.0
// Made by codegen/aten.py. Do not edit: change ops/npu/{Path(name).stem}.yaml.
#pragma once

#include "aten/custom/gradient.h"
#include "aten/ladder/native.h"
#include "aten/ops/structured.h"

namespace npu::fused {{
{chr(10).join(found)}
}}  // namespace npu::fused
"""
        for name, found in made.items()
    }


def check(kernels: list[Kernel], schemas: dict[str, list[str]]) -> list[str]:
    """What only shows once all rows are read."""
    problems = []
    for kernel in kernels:
        row = kernel.gradient
        if row is None:
            continue
        for name in filter(None, (row.operator, row.needs)):
            if name not in schemas:
                problems.append(
                    f"{row.line}: key 'gradient': no operator '{name}'{near(name, schemas)}."
                )
        if row.operator in schemas:
            problems += [
                f"{row.line}: key 'gradient': {row.operator} has no argument '{name}'"
                f"{near(name, schemas[row.operator])}."
                for name, _, _ in row.arguments
                if name not in schemas[row.operator]
            ]
    return problems
