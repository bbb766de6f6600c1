# SPDX-License-Identifier: Apache-2.0
"""C++ adapters for elementwise entries with `kind:`.

    native_<n>.cpp     one function per overload: fast path, meta and driver, CPU rung

Every overload of a group becomes one function: functional, in-place and out differ in where the
result lies. Shapes and dtypes come from PyTorch's structured meta (StructuredOp, structured.h);
where there is none, key `rule` says which one the iterator follows (MapRule, map.h).
"""

from __future__ import annotations

from aten_model import Operator, Source
from aten_overload import Overload, literal, meta_argument, shard, split
from aten_torch import TorchOps
from torchgen.api import structured
from torchgen.context import native_function_manager

MAP_KINDS = ("unary", "unary_with", "binary", "compare", "ternary")
SHARDS = 2


def is_structured(operator: Operator) -> bool:
    return operator.structured and operator.group.out.structured_inherits == "TensorIteratorBase"


def serves(operator: Operator) -> bool:
    return is_structured(operator) or bool(operator.options.rule)


class Adapter(Overload):
    @property
    def mapping(self):
        return self.operator.mapping

    # ---- parts -------------------------------------------------------------------

    def is_type(self, source: Source, type_: str) -> bool:
        argument = self.arguments.get(source.argument)
        return argument is not None and str(argument.type) == type_

    def is_tensor(self, source: Source) -> bool:
        return self.is_type(source, "Tensor") or self.is_type(source, "Tensor?")

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
                value = literal(source.constant)
                lines.append(f"  attrs.{attr.name} = number(c10::Scalar({value}));")
        return [*lines, "  const MapAttrs given = as_attrs(attrs);"]

    def bools(self) -> bool:
        return self.operator.kind.name == "compare" or self.operator.options.bool_result

    def fast_condition(self) -> str | None:
        """None: this overload has no fast path."""
        ins = [s for s in self.mapping.ins if not s.absent]
        if (
            self.form == "kOut"
            or (self.form == "kInplace" and self.bools())
            or not self.operator.options.fast
            or not all(s.absent for s in self.mapping.outs[1:])
            or len(ins) != len(self.mapping.ins)
            or not all(self.is_type(s, "Tensor") for s in ins)
            or (self.form == "kInplace" and ins[0].argument != "self")
        ):
            return None
        scalars = self.scalars()
        tests = [f"is_plain({s})" for s in scalars if self.needs_plain(s)]
        tests += [p.text for p in self.operator.options.predicates]
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
        return self.outs[0]

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

    def all_why_lines(self) -> list[str]:
        names = [s.argument for s in self.mapping.ins if self.is_tensor(s)]
        lines = self.why_lines(names + ([self.written()] if self.form == "kOut" else []))
        for scalar in filter(self.needs_plain, self.scalars()):
            lines += [
                f"  if (why == NPU_REASON_NONE && !is_value_of({scalar}, {names[0]})) {{",
                "    why = kLeaveToCpu;",
                "  }",
            ]
        if self.operator.options.floating:
            lines += [
                f"  if (!{self.mapping.ins[0].argument}.is_floating_point()) {{",
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
        rule = f"MapRule::k{self.operator.options.rule.capitalize()}"
        return [
            f"    at::TensorIterator iter = map_iterator({rule}, {into}, {self.inputs()});",
            f"    why = run_map(site, iter, {self.inputs()}, given);",
            "    if (why == NPU_REASON_NONE) {",
            f"      return {'iter.output(0)' if functional else self.written()};",
            "    }",
        ]

    def direct_lines(self) -> list[str]:
        """CPU's kernel on the iterator of npu tensors, where that is possible."""
        if not self.operator.options.direct or self.form != "kFunctional":
            return []
        types = {n: str(a.type) for n, a in self.arguments.items()}
        inputs = ", ".join(f"&{n}" for n, type_ in types.items() if type_ == "Tensor")
        scalars = "".join(f", {n}" for n, type_ in types.items() if type_ == "Scalar")
        return [
            f"  if (host_device::DirectRun run(site.entry(), why, {{{inputs}}}); run) {{",
            f"    StructuredOp<{self.meta_class()}> op(Outputs::Form::{self.form});",
            f"    {self.meta_call()}",
            "    if (host_device::is_direct(op)) {",
            f"      host_device::cpu::{self.operator.options.direct}(op{scalars});",
            "      run.finish({&op.outputs.at(0)});",
            "      return op.outputs.take(0);",
            "    }",
            "  }",
        ]

    def headers(self) -> set[str]:
        if not is_structured(self.operator):
            return super().headers()
        return super().headers() | {f"<ATen/ops/{self.operator.group.functional.root_name}_meta.h>"}

    def body(self) -> list[str]:
        inside = self.structured_lines() if is_structured(self.operator) else self.iterator_lines()
        return [
            *self.sites(),
            *self.attrs(),
            *self.fast_lines(),
            *self.all_why_lines(),
            "  if (why == NPU_REASON_NONE) {",
            *inside,
            "  }",
            *self.direct_lines(),
            *self.cpu_lines(),
        ]


def emit(operators: list[Operator], torch: TorchOps) -> dict[str, str]:
    """`operators`: those with a mapping that this emitter serves."""
    adapters = [Adapter(o, f, torch) for o in operators for f in o.functions]
    includes = ['"aten/host_device/cpu_kernels.h"', '"aten/host_device/direct.h"']
    includes += ['"aten/ops/map/map.h"', '"aten/ops/predicates.h"', '"npu/kinds.h"']
    return {
        f"native_{number}.cpp": shard(f"native_rows_{number}", includes, part)
        for number, part in enumerate(split(adapters, SHARDS))
    }
