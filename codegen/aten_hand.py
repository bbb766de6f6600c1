# SPDX-License-Identifier: Apache-2.0
"""C++ for functions written by hand: their declarations, and their registration.

    torch_npu/csrc/aten/NPUNativeFunctions.h   struct NPUNativeFunctions of each cpp_namespace
    RegisterNPU.cpp                            wrappers, and for our own build TORCH_LIBRARY blocks; a pack
                                               gets a function that the loader calls (pack.h)
    custom_ops.py                              Python side of new operators: Tensor methods

The signatures are torchgen's for backends outside PyTorch's tree (the dispatcher's, with int64_t
for SymInt). A function defined otherwise does not match its declaration: the compiler prints both.
"""

from __future__ import annotations

import functools
import json
import re

from aten_model import Operator, Pack
from aten_torch import TorchOps
from torchgen.api import cpp
from torchgen.api.types import DispatcherSignature
from torchgen.context import native_function_manager
from torchgen.model import Argument, DeviceCheckType, NativeFunction, Variant

HEADER = "torch_npu/csrc/aten/NPUNativeFunctions.h"
STRUCT = "NPUNativeFunctions"
MADE_BY = "// Made by codegen/aten.py. Do not edit: change the operator YAML."
BY_VALUE = {
    "const at::Scalar &": "at::Scalar",
    "const ::std::optional<at::Scalar> &": "::std::optional<at::Scalar>",
}


def in_context(emitter):
    """torchgen spells some types by the function at hand: tells it which that is."""

    @functools.wraps(emitter)
    def inside(operator: Operator) -> str:
        with native_function_manager(operator.primary):
            return emitter(operator)

    return inside


def signature(function: NativeFunction) -> DispatcherSignature:
    return DispatcherSignature.from_schema(function.func, symint=False)


def parameters(operator: Operator, function: NativeFunction) -> list[str]:
    """The parameters of the function written by hand: 'type name'."""
    result = []
    for argument in signature(function).arguments():
        type_ = argument.type
        if operator.scalar_by_value:
            type_ = BY_VALUE.get(type_, type_)
        result.append(f"{type_} {argument.name}")
    return result


def schema_text(function: NativeFunction) -> str:
    return f"{function.namespace}::{function.func}"


def registered_schema(function: NativeFunction) -> str:
    """The schema of a new operator as registered: like torch_npu, `self` is called `input`."""
    name, _, rest = str(function.func).partition("(")
    return name + "(" + re.sub(r"\bself\b", "input", rest)


# ---- declarations ------------------------------------------------------------------


@in_context
def declaration(operator: Operator) -> str:
    lines = [f"  // {schema_text(operator.primary)} ({operator.where})"]
    function = operator.primary
    args = parameters(operator, function)
    hint = ""
    if not operator.scalar_by_value and any(a.startswith(tuple(BY_VALUE)) for a in args):
        hint = "  // at::Scalar by value: 'scalar_by_value: true' in the YAML"
    returns = signature(function).returns_type().cpp_type()
    lines.append(f"  static {returns} {cpp.name(function.func)}({', '.join(args)});{hint}")
    return "\n".join(lines)


def header(operators: list[Operator]) -> str:
    spaces: dict[str, str] = {}
    for operator in operators:
        before = spaces.get(operator.cpp_namespace, "")
        spaces[operator.cpp_namespace] = before + declaration(operator) + "\n"
    blocks = "\n".join(
        f"""namespace {space} {{

// To be defined by hand, with exactly these types.
struct {STRUCT} {{
{declarations}}};

}}  // namespace {space}
"""
        for space, declarations in spaces.items()
    )
    return f"""{MADE_BY}
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

{blocks}"""


# ---- registration ------------------------------------------------------------------


def wrapper_name(function: NativeFunction) -> str:
    overload = str(function.func.name).replace(".", "_dot_")
    return f"{function.namespace}_{overload}"


def tensors(function: NativeFunction) -> list[Argument]:
    """Arguments that are tensors, lists of them included."""
    arguments = [*function.func.arguments.flat_non_out, *function.func.arguments.out]
    return [a for a in arguments if a.type.is_tensor_like()]


def device_lines(function: NativeFunction) -> list[str]:
    """Checks that all tensors are on one device, and makes it current."""
    found = tensors(function)
    if not found:
        return []
    lines = []
    if function.device_check is DeviceCheckType.ExactSame and len(found) > 1:
        lines.append("std::optional<at::Device> common;")
        name = f"{function.namespace}::{function.func.name}"
        lines += [
            f'c10::impl::check_and_update_common_device(common, {a.name}, "{name}", "{a.name}");'
            for a in found
        ]
    if function.device_guard:
        first = next((a for a in found if not a.type.is_list_like()), found[0])
        lines.append(f"const c10::OptionalDeviceGuard guard(at::device_of({first.name}));")
    return lines


def noted_wrapper(operator: Operator) -> str:
    """A wrapper of a pack's function counts its calls, so that one can ask whether it was called."""
    head, brace, body = wrapper(operator).partition(" {\n")
    function = operator.primary
    note = f'  static npu::pack::CallNote note("{function.namespace}::{function.func.name}");\n  note();\n'
    return head + brace + note + body


@in_context
def wrapper(operator: Operator) -> str:
    """The function that the dispatcher calls: device checks, then the one written by hand."""
    function = operator.primary
    sig = signature(function)
    names = ", ".join(a.name for a in sig.arguments())
    body = [] if operator.autograd else device_lines(function)
    body.append(f"return {operator.cpp_namespace}::{STRUCT}::{cpp.name(function.func)}({names});")
    text = "".join(f"  {line}\n" for line in body)
    return f"{sig.defn(wrapper_name(function))} {{\n{text}}}\n"


def library(macro: str, lines: list[str]) -> str:
    if not lines:
        return ""
    return f"{macro} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n\n"


def impl_lines(operators: list[Operator]) -> list[str]:
    return [
        f'm.impl("{o.primary.func.name}", TORCH_FN({wrapper_name(o.primary)}));' for o in operators
    ]


def calls(operators: list[Operator], ns: str, key: str) -> list[str]:
    """Lines of a pack's function that hand wrappers to the loader."""
    return [
        f"""all.implement(
      "{ns}", "{o.primary.func.name}", c10::DispatchKey::{key},
      torch::CppFunction(TORCH_FN({wrapper_name(o.primary)})), "{o.where.file.name}:{o.where.line}");"""
        for o in operators
    ]


def pack_registration(operators: list[Operator], name: str) -> str:
    """No static initialisers: a clash there would end the process."""
    wrappers = "\n".join(noted_wrapper(o) for o in operators)
    aten = [o for o in operators if not o.custom]
    custom = [o for o in operators if o.custom]
    lines = [
        f'all.define("{o.primary.namespace}", {json.dumps(registered_schema(o.primary))}, '
        f'"{o.where.file.name}:{o.where.line}");'
        for o in custom
    ]
    lines += calls([o for o in aten if not o.autograd], "aten", "PrivateUse1")
    lines += calls([o for o in aten if o.autograd], "aten", "AutogradPrivateUse1")
    for o in custom:
        # Without a tensor there is no device to dispatch by.
        key = "PrivateUse1" if tensors(o.primary) else "CompositeExplicitAutograd"
        lines += calls([o], o.primary.namespace, key)
        lines += calls([o], o.primary.namespace, "AutogradPrivateUse1") if o.autograd else []
    body = "".join(f"  {line}\n" for line in lines)
    return f"""{MADE_BY}
#include "{HEADER}"

#include <ATen/DeviceGuard.h>
#include <ATen/core/op_registration/adaption.h>

#include "torch_npu/pack.h"

namespace {{

{wrappers}
void add(npu::pack::Registrar& all) {{
{body}}}

}}  // namespace

NPU_TORCH_PACK("{name}", add)
"""


def registration(operators: list[Operator]) -> str:
    wrappers = "\n".join(wrapper(o) for o in operators)
    aten = [o for o in operators if not o.custom]
    custom = [o for o in operators if o.custom]
    schemas = [f"m.def({json.dumps(registered_schema(o.primary))});" for o in custom]
    # A new operator has no other kernel: with hand-written autograd it also serves calls that
    # record no gradient.
    blocks = [
        library(
            "TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)",
            impl_lines([o for o in aten if not o.autograd]),
        ),
        library(
            "TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m)",
            impl_lines([o for o in aten if o.autograd]),
        ),
        library("TORCH_LIBRARY_FRAGMENT(npu, m)", schemas),
        library("TORCH_LIBRARY_IMPL(npu, PrivateUse1, m)", impl_lines(custom)),
        library(
            "TORCH_LIBRARY_IMPL(npu, AutogradPrivateUse1, m)",
            impl_lines([o for o in custom if o.autograd]),
        ),
    ]
    return f"""{MADE_BY}
#include "{HEADER}"

#include <ATen/DeviceGuard.h>
#include <ATen/core/op_registration/adaption.h>
#include <torch/library.h>

namespace {{

{wrappers}
{"".join(blocks)}}}  // namespace
"""


def methods(operators: list[Operator]) -> set[str]:
    return {
        str(o.primary.func.name.name)
        for o in operators
        if o.custom and Variant.method in o.primary.variants
    }


def custom_ops(operators: list[Operator]) -> str:
    rows = "".join(f"    {name!r},\n" for name in sorted(methods(operators)))
    names = f"(\n{rows})" if rows else "()"
    return f'''# Made by codegen/aten.py. Do not edit: change the operator YAML.
"""Operators of namespace npu that are also methods of Tensor."""

METHODS = {names}
'''


def emit(pack: Pack, torch: TorchOps, name: str = "") -> dict[str, str]:
    """`name` of a user's pack."""
    by_hand = pack.declared()
    return {
        HEADER: header(by_hand),
        "RegisterNPU.cpp": pack_registration(by_hand, name) if name else registration(by_hand),
        "custom_ops.py": custom_ops(by_hand),
    }
