# SPDX-License-Identifier: Apache-2.0
"""Section `foreach` of the operator YAML: rows that stand for many overloads of torch._foreach_*."""

from __future__ import annotations

from aten_fit import default_code
from aten_model import Options
from aten_options import read_predicates
from yaml_reader import near

KEYS = ("names", "kind", "code", "overloads", "if")
PREFIX = "_foreach_"


def read_foreach(reader, node) -> None:
    """Adds one operator for each name and overload of the row; problems go to the reader."""
    what = "key 'foreach'"
    fields = reader.mapping(node, what)
    reader.known_keys(fields, f"{what}: ", KEYS)
    missing = [key for key in ("names", "kind") if key not in fields]
    if missing:
        if fields:
            reader.problem(node, f"{what}: an entry has no key '{missing[0]}'.")
        return
    kind = reader.kind_named(fields["kind"][1], f"{what}: key 'kind'")
    if kind is None:
        return
    overloads = [("", node)]
    if "overloads" in fields:
        listed = reader.sequence(fields["overloads"][1], f"{what}: key 'overloads'")
        overloads = [(reader.text(item, what), item) for item in listed]
    conditions = {}
    if "if" in fields:
        for key, value in reader.mapping(fields["if"][1], f"{what}: key 'if'").values():
            if key.value not in [o for o, _ in overloads]:
                names = [o for o, _ in overloads]
                reader.problem(
                    key, f"{what}: key 'if': no overload '{key.value}'{near(key.value, names)}."
                )
            conditions[key.value] = value
    for item in reader.sequence(fields["names"][1], f"{what}: key 'names'"):
        name = reader.text(item, f"{what}: key 'names'")
        code = code_of(reader, fields, kind, name, item)
        for overload, at in overloads if code is not None else ():
            add(reader, kind, code, name, overload, item if not overload else at, conditions)


def code_of(reader, fields: dict, kind, name: str, item) -> str | None:
    codes = [code for code, _ in kind.codes]
    word, node = default_code(kind, name), item
    if "code" in fields:
        node = fields["code"][1]
        word = reader.text(node, "key 'foreach': key 'code'")
    if word in codes:
        return word
    wanted = word or name
    reader.problem(
        node,
        f"key 'foreach': '{wanted}' is no code of kind '{kind.name}'{near(wanted, codes)}. "
        "Name one with key 'code'.",
    )
    return None


def add(reader, kind, code, name, overload, node, conditions) -> None:
    whole = f"{PREFIX}{name}" + (f".{overload}" if overload else "")
    function = reader.find(reader.line(node), "foreach", whole)
    if function is None:
        return
    group, functions = reader.whole_group(function)
    # The out= forms PyTorch composes of these.
    functions = [f for f in functions if not f.func.arguments.out]
    checks = ()
    if overload in conditions:
        what = "key 'foreach': key 'if'"
        found = read_predicates(reader, conditions[overload], what, function)
        checks = (("arguments", found),)
    reader.add(
        "foreach", node, whole, functions,
        group=group, kind=kind, code=code, options=Options(checks=checks),
    )  # fmt: skip
