# SPDX-License-Identifier: Apache-2.0
"""Fits a schema to a kind: which argument becomes which operand or attribute, or why it cannot."""

from __future__ import annotations

import re

import yaml
from aten_model import Constant, Mapping, Source
from kinds_model import Attr, Kind, Operand
from torchgen.model import Argument, NativeFunction
from yaml_reader import Reader, near

# Attribute type -> schema types it can hold.
HOLDS = {
    "i64": ("int", "int?"),
    "u32": ("int", "int?"),
    "u64": ("int", "int?"),
    "f64": ("float", "float?", "int", "Scalar", "Scalar?"),
    "bool": ("bool", "bool?"),
    "dims": ("int", "int[]", "int[]?"),
    "dtype": ("ScalarType", "ScalarType?"),
    "scalar": ("Scalar", "Scalar?", "float", "float?", "int", "int?", "bool", "bool?"),
    "enum": ("int", "str", "str?", "bool"),
}
ARRAY_HOLDS = {
    "i64": ("int[]", "int[]?"),
    "u32": ("int[]", "int[]?"),
    "u64": ("int[]", "int[]?"),
    "f64": ("float[]", "float[]?", "Scalar[]"),
    "scalar": ("Scalar[]", "float[]", "float[]?"),
}
TENSOR = ("Tensor", "Tensor?")
OPERAND = (*TENSOR, "Scalar")
# Prefixes that PyTorch's names have and codes have not.
PREFIXES = ("", "_", "special_", "linalg_")


def type_of(argument: Argument) -> str:
    """The schema type without list lengths; SymInt is int."""
    return re.sub(r"\[\d+\]", "[]", str(argument.type).replace("SymInt", "int"))


def constant(node) -> Constant:
    """A YAML scalar as Python value."""
    return yaml.SafeLoader("").construct_object(node)


def holds(attr: Attr) -> tuple[str, ...]:
    """The schema types that an attribute can hold."""
    if attr.length:
        return ARRAY_HOLDS[attr.type]
    return HOLDS["enum" if attr.values else attr.type]


def default_code(kind: Kind, base: str) -> str:
    """The operator's base name, when it is a code of the kind."""
    codes = [name for name, _ in kind.codes]
    words = [base.removeprefix(prefix) for prefix in PREFIXES]
    words += [re.sub(r"_backward$", "_grad", word) for word in words]
    return next((word for word in words if word in codes), "")


class Fit:
    """One entry with `kind:`. Problems go to the reader; `mapping()` gives None when there are any."""

    def __init__(
        self, reader: Reader, fields: dict, what: str, kind: Kind, function: NativeFunction
    ):
        self.reader, self.fields, self.what, self.kind = reader, fields, what, kind
        self.name = str(function.func.name)
        self.base = function.func.name.name.base
        self.returns = function.func.returns
        self.arguments = {a.name: a for a in function.func.arguments.flat_non_out}
        options = function.func.arguments.tensor_options
        self.claimed = {a.name for a in options.all()} if options else set()

    def problem(self, node, text: str) -> None:
        self.reader.problem(node, f"{self.what}: {text}")

    def mapping(self) -> Mapping | None:
        before = len(self.reader.problems)
        code, chosen_by, codes = self.read_code()
        ignored = self.read_ignore()
        attrs = self.read_attrs()
        named = self.read_operands()
        if len(self.reader.problems) > before:
            return None  # what is left over or missing would only follow from these
        outs, lists = self.place_results(named)
        ins = self.place_inputs(named)
        lists = self.place_lists(named, lists)
        self.check_leftovers()
        if len(self.reader.problems) > before:
            return None
        return Mapping(self.kind, code, chosen_by, codes, outs, ins, lists, attrs, ignored)

    def only_code(self) -> tuple[str, str, tuple[tuple[Constant, str], ...]] | None:
        """The code, or codes, of an entry whose frame is filled by hand."""
        before = len(self.reader.problems)
        found = self.read_code()
        return found if len(self.reader.problems) == before else None

    # ---- code --------------------------------------------------------------------

    def known_code(self, node, word: str) -> str:
        names = [name for name, _ in self.kind.codes]
        if not names:
            self.problem(node, f"kind '{self.kind.name}' has no codes. Remove key 'code'.")
        elif word not in names:
            self.problem(
                node,
                f"key 'code': '{word}' is no code of kind '{self.kind.name}'{near(word, names)}.",
            )
        return word

    def read_code(self) -> tuple[str, str, tuple[tuple[Constant, str], ...]]:
        if "code" not in self.fields:
            code = default_code(self.kind, self.base)
            if self.kind.codes and not code:
                names = [name for name, _ in self.kind.codes]
                self.problem(
                    self.fields["kind"][1],
                    f"kind '{self.kind.name}' has no code '{self.base}'"
                    f"{near(self.base, names)}. Name one with key 'code'.",
                )
            return code, "", ()
        node = self.fields["code"][1]
        if isinstance(node, yaml.ScalarNode):
            return self.known_code(node, node.value), "", ()
        chosen = self.reader.mapping(node, f"{self.what}: key 'code'")
        if len(chosen) != 1:
            self.problem(node, "key 'code': expected a code, or {argument: {value: code, …}}.")
            return "", "", ()
        key, table = next(iter(chosen.values()))
        self.claim(key, key.value)
        rows = self.reader.mapping(table, f"{self.what}: key 'code'")
        codes = tuple(
            (constant(value), self.known_code(code, self.reader.text(code, self.what)))
            for value, code in rows.values()
        )
        return "", key.value, codes

    # ---- arguments ---------------------------------------------------------------

    def claim(self, node, argument: str) -> Argument | None:
        """Marks the argument as used; a problem when the schema lacks it."""
        if argument not in self.arguments:
            self.problem(
                node,
                f"{self.name} has no argument '{argument}'{near(argument, self.arguments)}. "
                f"It has: {', '.join(self.arguments)}.",
            )
            return None
        self.claimed.add(argument)
        return self.arguments[argument]

    def read_ignore(self) -> tuple[str, ...]:
        if "ignore" not in self.fields:
            return ()
        names = []
        for item in self.reader.sequence(self.fields["ignore"][1], f"{self.what}: key 'ignore'"):
            names.append(self.reader.text(item, f"{self.what}: key 'ignore'"))
            self.claim(item, names[-1])
        return tuple(names)

    def read_attrs(self) -> tuple[Source, ...]:
        given = {}
        if "attrs" in self.fields:
            given = self.reader.mapping(self.fields["attrs"][1], f"{self.what}: key 'attrs'")
        known = [a.name for a in self.kind.attrs]
        for key, _ in given.values():
            if key.value not in known:
                self.problem(
                    key,
                    f"key 'attrs': kind '{self.kind.name}' has no attribute '{key.value}'"
                    f"{near(key.value, known)}. It has: {', '.join(known) or 'none'}.",
                )
        return tuple(self.attr_source(a, given.get(a.name)) for a in self.kind.attrs)

    def attr_source(self, attr: Attr, given) -> Source:
        if given is None:
            own = self.arguments.get(attr.name)
            if own is None or own.name in self.claimed or type_of(own) not in holds(attr):
                return Source()
            self.claimed.add(own.name)
            return Source(argument=own.name)
        node = given[1]
        if isinstance(node, yaml.SequenceNode) and attr.length:
            return self.array_source(attr, node)
        if not isinstance(node, yaml.ScalarNode):
            self.problem(node, f"key 'attrs': '{attr.name}': expected an argument or a constant.")
            return Source()
        if node.value in self.arguments:
            argument = self.claim(node, node.value)
            if type_of(argument) not in holds(attr):
                self.problem(
                    node,
                    f"key 'attrs': attribute '{attr.name}' of kind '{self.kind.name}' holds "
                    f"{', '.join(holds(attr))}, but argument '{argument.name}' of {self.name} is "
                    f"{argument.type}.",
                )
            return Source(argument=node.value)
        return self.constant_source(attr, node)

    def array_source(self, attr: Attr, node) -> Source:
        """Elements of an array attribute, each an argument of its own."""
        names = []
        for item in node.value:
            argument = self.claim(item, self.reader.text(item, f"{self.what}: key 'attrs'"))
            if argument is not None and type_of(argument) not in HOLDS[attr.type]:
                self.problem(
                    item,
                    f"key 'attrs': attribute '{attr.name}' of kind '{self.kind.name}' holds "
                    f"{', '.join(HOLDS[attr.type])}, but argument '{argument.name}' is "
                    f"{argument.type}.",
                )
            names.append(item.value)
        if len(names) > attr.length:
            self.problem(node, f"key 'attrs': attribute '{attr.name}' has {attr.length} elements.")
        return Source(arguments=tuple(names))

    def constant_source(self, attr: Attr, node) -> Source:
        value = constant(node)
        if attr.values:
            if node.value in attr.values:
                return Source(constant=node.value)
            wanted, names = f"one of {', '.join(attr.values)}", (*attr.values, *self.arguments)
        else:
            kinds = {"bool": (bool,), "f64": (int, float), "scalar": (bool, int, float)}
            fits = kinds.get(attr.type, (int,))
            if not attr.length and isinstance(value, fits) and attr.type != "dtype":
                return Source(constant=value)
            wanted, names = f"a constant of type {attr.type}", tuple(self.arguments)
        self.problem(
            node,
            f"key 'attrs': '{node.value}' is neither an argument of {self.name} nor {wanted}"
            f"{near(node.value, names)}. Arguments: {', '.join(self.arguments)}.",
        )
        return Source()

    # ---- operands ----------------------------------------------------------------

    def read_operands(self) -> dict[str, Source]:
        if "operands" not in self.fields:
            return {}
        known = [o.name for o in (*self.kind.outs, *self.kind.ins, *self.kind.lists)]
        results = [r.name or f"result{i}" for i, r in enumerate(self.returns)]
        what = f"{self.what}: key 'operands'"
        sources = {}
        for key, value in self.reader.mapping(self.fields["operands"][1], what).values():
            word = self.reader.text(value, what)
            if key.value not in known:
                self.problem(
                    key,
                    f"key 'operands': kind '{self.kind.name}' has no operand '{key.value}'"
                    f"{near(key.value, known)}. It has: {', '.join(known)}.",
                )
            elif key.value in [o.name for o in self.kind.outs] and word in results:
                sources[key.value] = Source(result=results.index(word))
            elif value.tag.endswith(":null"):
                sources[key.value] = Source()
            elif argument := self.claim(value, word):
                self.check_operand(value, key.value, argument)
                sources[key.value] = Source(argument=word)
        return sources

    def check_operand(self, node, operand: str, argument: Argument) -> None:
        is_list = operand in [o.name for o in self.kind.lists]
        allowed = ("Tensor[]", "Tensor?[]") if is_list else OPERAND
        if type_of(argument) not in allowed:
            self.problem(
                node,
                f"key 'operands': operand '{operand}' of kind '{self.kind.name}' takes "
                f"{' or '.join(allowed)}, but argument '{argument.name}' of {self.name} is "
                f"{argument.type}.",
            )

    def place_results(self, named: dict[str, Source]) -> tuple[tuple[Source, ...], dict]:
        """Results in order to outputs in order; Tensor[] results to output lists."""
        taken = {s.result for s in named.values()}
        free = [i for i in range(len(self.returns)) if i not in taken]
        plain = [i for i in free if str(self.returns[i].type) == "Tensor"]
        listed = [i for i in free if str(self.returns[i].type) == "Tensor[]"]
        outs = [
            named[o.name] if o.name in named else Source(result=plain.pop(0)) if plain else Source()
            for o in self.kind.outs
        ]
        lists = {
            o.name: Source(result=listed.pop(0))
            for o in self.kind.lists
            if o.mode.startswith("out") and listed and o.name not in named
        }
        self.check_present(self.kind.outs, outs, "output", "result")
        if plain or listed:
            self.problem(
                self.fields["kind"][1],
                f"{self.name} returns {len(self.returns)} results, kind '{self.kind.name}' "
                f"has room for {len(self.kind.outs)} outputs.",
            )
        return tuple(outs), lists

    def place_inputs(self, named: dict[str, Source]) -> tuple[Source, ...]:
        """By name, then in order: tensors, and scalars too where tensors are too few."""
        sources = dict(named)

        def take(operand: Operand, argument: Argument) -> None:
            self.claimed.add(argument.name)
            sources[operand.name] = Source(argument=argument.name)

        for operand in self.kind.ins:
            same = [a for a in self.free(OPERAND) if a.name == operand.name]
            if same and operand.name not in sources:
                take(operand, same[0])
        left = [o for o in self.kind.ins if o.name not in sources]
        needed = [o for o in left if not o.optional]
        if len(self.free(TENSOR)) >= len(needed):
            pairs = zip(left, self.free(TENSOR))
        else:
            pairs = zip(needed, self.free(OPERAND))
        for operand, argument in list(pairs):
            take(operand, argument)
        placed = tuple(sources.get(o.name, Source()) for o in self.kind.ins)
        self.check_present(self.kind.ins, placed, "input", "tensor argument")
        return placed

    def free(self, types) -> list[Argument]:
        """Arguments of these types that nothing has claimed yet."""
        return [
            a for a in self.arguments.values() if a.name not in self.claimed and type_of(a) in types
        ]

    def place_lists(self, named: dict[str, Source], lists: dict) -> tuple[Source, ...]:
        sources = {**lists, **named}
        for operand in self.kind.lists:
            free = self.free(("Tensor[]",))
            if operand.name not in sources and free:
                self.claimed.add(free[0].name)
                sources[operand.name] = Source(argument=free[0].name)
        placed = tuple(sources.get(o.name, Source()) for o in self.kind.lists)
        self.check_present(self.kind.lists, placed, "list", "list argument")
        return placed

    def check_present(self, operands, sources, what: str, missing: str) -> None:
        for operand, source in zip(operands, sources):
            if source.absent and not operand.optional:
                self.problem(
                    self.fields["kind"][1],
                    f"kind '{self.kind.name}' needs {what} '{operand.name}', and {self.name} has "
                    f"no {missing} left for it.",
                )

    def check_leftovers(self) -> None:
        for argument in self.arguments.values():
            if argument.name in self.claimed:
                continue
            if type_of(argument) in TENSOR:
                self.problem(
                    self.fields["kind"][1],
                    f"argument '{argument.name}' of {self.name} is a tensor, and kind "
                    f"'{self.kind.name}' takes {len(self.kind.ins)}: it does not fit.",
                )
            else:
                fits = [a.name for a in self.kind.attrs if type_of(argument) in holds(a)]
                help_ = f"attrs: {{{fits[0]}: {argument.name}}} or " if fits else ""
                self.problem(
                    self.fields["kind"][1],
                    f"argument '{argument.name}' ({argument.type}) of {self.name} goes nowhere. "
                    f"Write {help_}ignore: [{argument.name}].",
                )
