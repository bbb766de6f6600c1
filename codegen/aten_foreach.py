# SPDX-License-Identifier: Apache-2.0
"""C++ for the rows of section `foreach`: one call of kind multi_map, the list kernel of the device's twin where that
has one (the CPU has none), or PyTorch's own loop.

    foreach_<n>.cpp   one function per overload

Which argument is what follows from its type: lists of tensors are operands in order, and a Scalar,
a list of them, or a Tensor is the factor.
"""

from __future__ import annotations

from aten_model import Pack
from aten_overload import Overload, shard, split
from aten_torch import TorchOps

SHARDS = 1


class Foreach(Overload):
    def factor(self) -> str:
        """The argument that is the factor; `alpha` beside a Tensor is for the entry's condition."""
        scalars = [n for n, t in self.types.items() if t in ("Scalar", "Scalar[]", "Tensor")]
        tensors = [n for n in scalars if self.types[n] == "Tensor"]
        found = (tensors or scalars or [""])[0]
        return f"foreach::Factor({found})" if found else "{}"

    def lists(self) -> str:
        return "{" + ", ".join(n for n, t in self.types.items() if t == "Tensor[]") + "}"

    def cpu_lines(self) -> list[str]:
        name = self.function.func.name.name
        arguments = ", ".join(n for _, n in self.parameters)
        return [f"  return at::compositeexplicitautograd::{name}({arguments});"]

    def twin_lines(self) -> list[str]:
        name, _, overload = self.overload.partition(".")
        result = "void" if self.form == "kInplace" else "std::vector<at::Tensor>"
        arguments = ", ".join(n for _, n in self.parameters)
        return [
            "  if (C10_UNLIKELY(!twin::uses_cpu_functions())) {",
            f'    static const ladder::TwinOp op("aten::{name}", "{overload}", "aten::{self.overload}");',
            f"    return op.call<{result}>({arguments});",
            "  }",
        ]

    def headers(self) -> set[str]:
        return {f"<ATen/ops/{self.function.root_name}_compositeexplicitautograd_dispatch.h>"}

    def body(self) -> list[str]:
        kind = self.operator.kind.name.upper()
        code = f"NPU_{kind}_{self.operator.code.upper()}"
        conditions = "".join(f"{p.text} && " for p in self.operator.options.predicates)
        call = f"({{site, {code}}}, {self.lists()}, {self.factor()})"
        name = f'"aten::{self.overload}"'
        lines = [f"  static NativeSite site({name}, NPU_KIND_MULTI_MAP, NPU_MULTI_MAP_{kind});"]
        if self.form == "kInplace":
            lines += [f"  if ({conditions}foreach::map_into{call}) {{", "    return;", "  }"]
        else:
            lines += [
                "  std::vector<at::Tensor> made;",
                f"  if ({conditions}foreach::map_new{call[:-1]}, made)) {{",
                "    return made;",
                "  }",
            ]
        return [*lines, *self.twin_lines(), *self.cpu_lines()]


INCLUDES = ['"aten/ops/lists/foreach.h"', '"aten/ops/predicates.h"', '"npu/kinds.h"']


def emit(pack: Pack, torch: TorchOps) -> dict[str, str]:
    overloads = [Foreach(o, f, torch) for o in pack.foreach() for f in o.functions]
    return {
        f"foreach_{number}.cpp": shard(f"foreach_rows_{number}", INCLUDES, part)
        for number, part in enumerate(split(overloads, SHARDS))
    }
