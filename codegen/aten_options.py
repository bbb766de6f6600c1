# SPDX-License-Identifier: Apache-2.0
"""The keys of an entry that say how its adapter is made: what goes to the function written by hand,
which calls are left to the CPU, what PyTorch's description of the operator does not tell."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import yaml
from aten_model import Constant, Options, Predicate, Source
from torchgen.model import NativeFunction
from yaml_reader import Reader, near

OPTION_KEYS = (
    *("with", "arguments", "sites", "forms", "wants", "anyway", "direct", "check"),
    *("otherwise", "cpu", "cpu_results", "rule", "floating", "result", "fast"),
)
# Reasons a check may give (NPU_REASON_*), and the rules of MapRule (src/aten/ops/map/map.h).
REASONS = ("arguments", "alias", "attribute", "dtype", "size", "strides")
RULES = ("unary", "float", "bool", "binary", "compare")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
PREDICATES = Path(__file__).resolve().parents[1] / "src/aten/ops/predicates.h"


@functools.cache
def shared_predicates() -> set[str]:
    """Names that predicates.h has."""
    text = PREDICATES.read_text(encoding="utf-8") if PREDICATES.exists() else ""
    return set(re.findall(r"^(?:(?:inline )?bool |using npu::)(\w+)", text, re.M))


def read_predicates(
    reader: Reader, node, what: str, function: NativeFunction
) -> tuple[Predicate, ...]:
    """{predicate: argument, predicate: [arguments]}: the YAML has no expressions of C++."""
    if not isinstance(node, yaml.MappingNode):
        reader.problem(
            node,
            f"{what}: expected {{predicate: [arguments]}}. Write a condition in C++, as a function "
            "'bool predicate(…)' beside the adapter or in src/aten/ops/predicates.h.",
        )
        return ()
    known = [a.name for a in function.func.arguments.flat_all]
    found = []
    for key, value in reader.mapping(node, what).values():
        nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
        names = tuple(reader.text(each, what) for each in nodes)
        for name in names:
            if name not in known:
                reader.problem(
                    value,
                    f"{what}: no argument '{name}'{near(name, known)}. It has: {', '.join(known)}.",
                )
        if not IDENTIFIER.fullmatch(key.value):
            reader.problem(key, f"{what}: '{key.value}' is not the name of a predicate.")
        found.append(Predicate(key.value, names, key.value in shared_predicates()))
    return tuple(found)


def read_options(reader: Reader, fields: dict, what: str, function: NativeFunction) -> Options:
    return Options(
        constants=_constants(reader, fields, what),
        arguments=_arguments(reader, fields, what, function),
        sites=_sites(reader, fields, what, function),
        wants=_wants(reader, fields, what, function),
        anyway=_anyway(reader, fields, what, function),
        direct=_function(reader, fields, what, "direct"),
        checks=_checks(reader, fields, what, function),
        cpu=_function(reader, fields, what, "cpu"),
        cpu_results=_function(reader, fields, what, "cpu_results"),
        composite=_choice(reader, fields, what, "otherwise", ("cpu", "composite")) == "composite",
        alone=_choice(reader, fields, what, "forms", ("all", "named")) == "named",
        rule=_choice(reader, fields, what, "rule", RULES),
        floating=_choice(reader, fields, what, "floating", ("false", "true")) == "true",
        bool_result=_choice(reader, fields, what, "result", ("bool",)) == "bool",
        fast=_choice(reader, fields, what, "fast", ("true", "false")) != "false",
    )


def _choice(reader: Reader, fields: dict, what: str, key: str, allowed) -> str:
    return reader.choice(fields[key][1], f"{what}: key '{key}'", allowed) if key in fields else ""


def _function(reader: Reader, fields: dict, what: str, key: str) -> str:
    if key not in fields:
        return ""
    node = fields[key][1]
    name = reader.text(node, f"{what}: key '{key}'")
    if not IDENTIFIER.fullmatch(name):
        reader.problem(node, f"{what}: key '{key}': '{name}' is not a C++ function name.")
    return name


def _value(node):
    """What YAML takes a node for; "" where it is no scalar."""
    return yaml.SafeLoader("").construct_object(node) if isinstance(node, yaml.ScalarNode) else ""


def _constants(reader: Reader, fields: dict, what: str) -> tuple[tuple[str, Constant], ...]:
    if "with" not in fields:
        return ()
    found = []
    for key, node in reader.mapping(fields["with"][1], f"{what}: key 'with'").values():
        value = _value(node)
        if not isinstance(value, (bool, int, float)) or not IDENTIFIER.fullmatch(key.value):
            reader.problem(
                node, f"{what}: key 'with': expected {{name: number}} or {{name: true}}."
            )
            continue
        found.append((key.value, value))
    return tuple(found)


def _arguments(reader: Reader, fields: dict, what: str, function):
    """What the function is called with: names of the schema's arguments, constants, ~ for no tensor."""
    if "arguments" not in fields:
        return None
    names = [a.name for a in function.func.arguments.flat_non_out]
    found = []
    for node in reader.sequence(fields["arguments"][1], f"{what}: key 'arguments'"):
        value = _value(node)
        if isinstance(value, str) and value not in names:
            reader.problem(
                node,
                f"{what}: key 'arguments': no argument '{node.value}'{near(value, names)}. "
                f"It has: {', '.join(names)}.",
            )
            continue
        found.append(Source(argument=value) if isinstance(value, str) else value)
    return tuple(found)


def _sites(reader: Reader, fields: dict, what: str, function: NativeFunction):
    """Sites beside the entry's own, by the names of the function's parameters: {apply: kind.code}."""
    if "sites" not in fields:
        return ()
    found = []
    taken = ["site", "outputs", "why", *(a.name for a in function.func.arguments.flat_all)]
    for key, node in reader.mapping(fields["sites"][1], f"{what}: key 'sites'").values():
        if key.value in taken:
            reader.problem(
                key, f"{what}: key 'sites': '{key.value}' is an argument. Rename the site."
            )
        text = reader.text(node, f"{what}: key 'sites'")
        name, _, code = text.partition(".")
        kind = reader.kinds.get(name)
        codes = [code for code, _ in kind.codes] if kind else ()
        if kind is None or ((code or codes) and code not in codes):
            reader.problem(
                node,
                f"{what}: key 'sites': '{text}' is no kind of ops/kinds.yaml with its code"
                f"{near(text, [f'{name}.{c}' for c in codes] or reader.kinds)}.",
            )
            continue
        found.append((key.value, kind, code))
    return tuple(found)


def _wants(reader: Reader, fields: dict, what: str, function) -> tuple[str, ...] | None:
    if "wants" not in fields:
        return None
    tensors = [a.name for a in function.func.arguments.flat_all if "Tensor" in str(a.type)]
    names = []
    for node in reader.sequence(fields["wants"][1], f"{what}: key 'wants'"):
        name = reader.text(node, f"{what}: key 'wants'")
        if name not in tensors:
            reader.problem(
                node,
                f"{what}: key 'wants': no tensor argument '{name}'{near(name, tensors)}. "
                f"It has: {', '.join(tensors)}.",
            )
        names.append(name)
    return tuple(names)


def _anyway(reader: Reader, fields: dict, what: str, function) -> tuple[Predicate, ...]:
    """Predicates, or an argument that is a bool."""
    if "anyway" not in fields:
        return ()
    node = fields["anyway"][1]
    flags = [a.name for a in function.func.arguments.flat_all if str(a.type) == "bool"]
    if isinstance(node, yaml.ScalarNode) and node.value in flags:
        return (Predicate("", (node.value,)),)
    return read_predicates(reader, node, f"{what}: key 'anyway'", function)


def _checks(reader: Reader, fields: dict, what: str, function: NativeFunction):
    """Predicates that must hold, by the reason to give where one does not."""
    if "check" not in fields:
        return ()
    what = f"{what}: key 'check'"
    return tuple(
        (reader.choice(key, what, REASONS), read_predicates(reader, value, what, function))
        for key, value in reader.mapping(fields["check"][1], what).values()
    )
