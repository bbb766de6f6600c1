# SPDX-License-Identifier: Apache-2.0
"""ops/kinds.yaml as checked data: a wrong entry is refused with file, line and key."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import yaml
from yaml_reader import Reader, YamlError, near

PLANS = ("none", "dtype", "shape")
# A kind that may be planned from a later minor of the contract on, never for older drivers.
LATER_PLANS = ("shape since 1.1", "shape since 1.2")
# Flags a driver's caps must have before an attribute or operand reaches it set: NPU_CAP_*.
LATER_CAPS = ("epilogue", "bias_gradient", "epilogue_grad", "dropout_rule")
# What a driver may round between two sums; the accumulate dtype unless the kind says so.
INTERMEDIATES = ("operand",)
LEVELS = ("standard", "optional", "fused")
CAPABILITIES = (
    "accumulate",
    "alias",
    "capture",
    "deterministic",
    "index64",
    "math_mode",
    "strided",
)
OUT_MODES = ("out", "out?", "inout", "inout?", "count", "fill", "fill?")
IN_MODES = ("in", "in?")
LIST_MODES = ("in", "in?", "out", "out?", "inout", "inout?")

FLOATS = ("F16", "BF16", "F32", "F64")
FLOAT8 = ("F8_E4M3FN", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0FNU", "F4_E2M1FN_X2")
COMPLEX = ("C32", "C64", "C128")
INTEGERS = ("U8", "I8", "I16", "I32", "I64", "U16", "U32", "U64")
# Which dtypes an operand may have; "any" is not listed.
CLASSES = {
    "bool": ("BOOL",),
    "u8": ("U8",),
    "i8": ("I8",),
    "i32": ("I32",),
    "i64": ("I64",),
    "u64": ("U64",),
    "f32": ("F32",),
    "index": ("I32", "I64"),
    "mask": ("BOOL", "U8"),
    "integer": INTEGERS,
    "float": FLOATS,
    "lowfloat": FLOAT8,
    "complex": COMPLEX,
    "floating": FLOATS + COMPLEX,
    "real": ("BOOL", *INTEGERS, *FLOATS),
}

# Attribute types: C type, bytes, alignment.
TYPES = {
    "i64": ("int64_t", 8, 8),
    "f64": ("double", 8, 8),
    "u32": ("uint32_t", 4, 4),
    "u64": ("uint64_t", 8, 8),
    "bool": ("uint32_t", 4, 4),
    "dims": ("uint64_t", 8, 8),
    "dtype": ("npu_dtype", 2, 2),
    "scalar": ("npu_scalar", 32, 8),
}
ARRAY_TYPES = ("i64", "f64", "u32", "u64", "scalar")
MAX_ARRAY = 64
MAX_OPERANDS = 16
MAX_LISTS = 16
MAX_SLOT = 255
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# Words that cannot name a struct field in C11 and C++20.
# fmt: off
KEYWORDS = frozenset((
    "alignas", "alignof", "and", "asm", "auto", "bitand", "bitor", "bool", "break", "case",
    "catch", "char", "class", "compl", "concept", "const", "consteval", "constexpr",
    "constinit", "continue", "decltype", "default", "delete", "do", "double", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline",
    "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator",
    "or", "private", "protected", "public", "register", "requires", "restrict", "return",
    "short", "signed", "sizeof", "static", "struct", "switch", "template", "this", "throw",
    "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual",
    "void", "volatile", "while", "xor", "size", "attrs", "call", "text",
))
# fmt: on


@dataclasses.dataclass(frozen=True)
class Operand:
    name: str
    mode: str
    classes: tuple[str, ...]  # empty: any dtype
    cap: str = ""  # of LATER_CAPS

    @property
    def optional(self) -> bool:
        return self.mode.endswith("?") or self.mode in ("count", "fill")

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(d for c in self.classes for d in CLASSES[c]))


@dataclasses.dataclass(frozen=True)
class Attr:
    name: str
    type: str
    length: int  # 0: a single value
    values: tuple[str, ...]  # of an enum
    key: str  # "", "key" or "class"
    cap: str = ""  # of LATER_CAPS
    cap_from: int = 1  # the smallest value that needs it

    @property
    def c_type(self) -> str:
        return TYPES[self.type][0]

    @property
    def bytes(self) -> int:
        return TYPES[self.type][1] * max(self.length, 1)

    @property
    def alignment(self) -> int:
        return TYPES[self.type][2]


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    slot: int
    family: str
    doc: str
    plan: str
    plan_1_0: str  # what contract 1.0 allowed
    plan_1_1: str
    level: str
    interface: str
    intermediate: str
    reserved: str
    codes: tuple[tuple[str, str], ...]  # name, doc
    outs: tuple[Operand, ...]
    ins: tuple[Operand, ...]
    lists: tuple[Operand, ...]
    attrs: tuple[Attr, ...]
    caps: tuple[str, ...]
    decompose: tuple[str, ...]
    line: int

    @property
    def two_step(self) -> bool:
        return any(o.mode == "count" for o in self.outs)


KindsError = YamlError


class KindsReader(Reader):
    """The parts of a kind."""

    def name(self, node, what: str, field: bool = True) -> str:
        value = self.text(node, what)
        if not NAME.fullmatch(value):
            self.problem(
                node,
                f"{what}: '{value}' is not a name. Allowed: lower case words with '_' between.",
            )
        elif field and value in KEYWORDS:
            self.problem(
                node,
                f"{what}: '{value}' is reserved in C, C++ or generated code. Take another.",
            )
        return value

    # ---- parts of a kind -----------------------------------------------------

    def operands(self, node, what: str, modes) -> tuple[Operand, ...]:
        result = []
        for key, value in self.mapping(node, what).values():
            name = self.name(key, what)
            where = f"{what} '{name}'"
            text, cap, _ = self.later_cap(value, where, self.text(value, where))
            words = text.split()
            if not words or words[0] not in modes:
                got = words[0] if words else ""
                self.problem(
                    value, f"{where}: mode '{got}' is not known. Allowed: {', '.join(modes)}."
                )
                continue
            for word in words[1:]:
                if word not in CLASSES:
                    self.problem(
                        value,
                        f"{where}: dtype class '{word}' is not known. Allowed: {', '.join(CLASSES)}"
                        f"{near(word, CLASSES)}.",
                    )
            if cap and words[0] != "in?":
                self.problem(value, f"{where}: only an input of mode 'in?' may need a capability.")
            classes = tuple(w for w in words[1:] if w in CLASSES)
            result.append(Operand(name, words[0], classes, cap))
        return tuple(result)

    def later_cap(self, node, where: str, text: str) -> tuple[str, str, str]:
        """The text without '!cap(flag)' or '!cap(flag from value)', the flag, the value."""
        text = text.strip()
        found = re.search(r"!cap\((\w*)(?: from (\w+))?\)$", text)
        if not found:
            return text, "", ""
        if found.group(1) not in LATER_CAPS:
            self.problem(
                node,
                f"{where}: capability '{found.group(1)}' is not known. Allowed: "
                f"{', '.join(LATER_CAPS)}.",
            )
        return text[: found.start()].strip(), found.group(1), found.group(2) or ""

    def attr(self, key, value, what: str) -> Attr | None:
        name = self.name(key, what)
        where = f"{what} '{name}'"
        text, needs, first = self.later_cap(value, where, self.text(value, where))
        key_mark = re.search(r"!(key|class)$", text)
        is_key = key_mark.group(1) if key_mark else ""
        if key_mark:
            text = text[: key_mark.start()].strip()
        if is_key == "class" and text not in ("scalar", "f64", "i64"):
            self.problem(value, f"{where}: '!class' is for scalar, f64 and i64, not '{text}'.")
        enum = re.fullmatch(r"enum\((.*)\)", text)
        if enum:
            values = tuple(v.strip() for v in enum.group(1).split(","))
            for v in values:
                if not NAME.fullmatch(v):
                    self.problem(value, f"{where}: enum value '{v}' is not a name.")
            if len(set(values)) != len(values):
                self.problem(value, f"{where}: an enum value is there twice.")
            if first and first not in values:
                self.problem(value, f"{where}: '!cap(... from {first})' names no value of it.")
            cap_from = values.index(first) if first in values else 1
            return Attr(name, "u32", 0, values, is_key, needs, cap_from)
        if first:
            self.problem(value, f"{where}: '!cap(... from value)' is for an enum.")
        array = re.fullmatch(r"(\w+)\[(\d+)\]", text)
        base, length = (array.group(1), int(array.group(2))) if array else (text, 0)
        if base not in TYPES or (
            array and (base not in ARRAY_TYPES or not 1 <= length <= MAX_ARRAY)
        ):
            self.problem(
                value,
                f"{where}: type '{text}' is not known. Allowed: {', '.join(TYPES)}, enum(a, b), "
                f"and {', '.join(t + '[N]' for t in ARRAY_TYPES)} with N up to {MAX_ARRAY}; "
                f"'!key' or '!class', and '!cap(flag)' may follow.",
            )
            return None
        return Attr(name, base, length, (), is_key, needs)

    def codes(self, node, what: str) -> tuple[tuple[str, str], ...]:
        result = []
        for item in self.sequence(node, what):
            if isinstance(item, yaml.MappingNode) and len(item.value) == 1:
                key, value = item.value[0]
                result.append((self.name(key, what, field=False), self.text(value, what)))
            else:
                result.append((self.name(item, what, field=False), ""))
        names = [name for name, _ in result]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.problem(node, f"{what}: code '{name}' is there twice.")
        return tuple(result)

    # ---- a kind ----------------------------------------------------------------

    def kind(self, node) -> Kind | None:
        fields = self.mapping(node, "kind")
        if "kind" not in fields:
            self.problem(node, "an entry has no key 'kind'. Give it a name.")
            return None
        name = self.name(fields["kind"][1], "key 'kind'")
        what = f"kind '{name}'"
        unwritten = ("name", "line", "plan_1_0", "plan_1_1")
        known = [f.name for f in dataclasses.fields(Kind) if f.name not in unwritten]
        self.known_keys(fields, f"{what}: ", ["kind", *known])
        for required in ("slot", "family", "plan"):
            if required not in fields:
                self.problem(node, f"{what}: key '{required}' is missing.")

        def get(key, read, default):
            return read(fields[key][1], f"{what}: key '{key}'") if key in fields else default

        attrs = [
            self.attr(key, value, f"{what}: attribute")
            for key, value in get("attrs", self.mapping, {}).values()
        ]
        plan = get("plan", lambda n, w: self.choice(n, w, PLANS + LATER_PLANS), "none")
        kind = Kind(
            name=name,
            slot=get("slot", self.slot, 0),
            family=get("family", lambda n, w: self.name(n, w, field=False), ""),
            doc=get("doc", self.text, ""),
            plan=plan.split()[0],
            plan_1_0="none" if plan in LATER_PLANS else plan,
            plan_1_1="none" if plan == "shape since 1.2" else plan.split()[0],
            level=get("level", lambda n, w: self.choice(n, w, LEVELS), "standard"),
            interface=get("interface", self.text, ""),
            intermediate=get("intermediate", lambda n, w: self.choice(n, w, INTERMEDIATES), ""),
            reserved=get("reserved", lambda n, w: self.choice(n, w, ("true",)), ""),
            codes=get("codes", self.codes, ()),
            outs=get("outs", lambda n, w: self.operands(n, f"{what}: output", OUT_MODES), ()),
            ins=get("ins", lambda n, w: self.operands(n, f"{what}: input", IN_MODES), ()),
            lists=get("lists", lambda n, w: self.operands(n, f"{what}: list", LIST_MODES), ()),
            attrs=tuple(a for a in attrs if a is not None),
            caps=get("caps", self.capabilities, ()),
            decompose=get("decompose", self.words, ()),
            line=node.start_mark.line + 1,
        )
        self.shape_of(kind, node, what)
        return kind

    def slot(self, node, what: str) -> int:
        value = self.text(node, what)
        if not value.isdigit() or not 1 <= int(value) <= MAX_SLOT:
            self.problem(node, f"{what}: '{value}' is not a slot. Allowed: 1 to {MAX_SLOT}.")
            return 0
        return int(value)

    def words(self, node, what: str) -> tuple[str, ...]:
        return tuple(self.text(item, what) for item in self.sequence(node, what))

    def capabilities(self, node, what: str) -> tuple[str, ...]:
        return tuple(self.choice(item, what, CAPABILITIES) for item in self.sequence(node, what))

    def shape_of(self, kind: Kind, node, what: str) -> None:
        names = [o.name for o in (*kind.outs, *kind.ins, *kind.lists)]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.problem(node, f"{what}: operand '{name}' is there twice.")
        if len(kind.outs) + len(kind.ins) > MAX_OPERANDS:
            self.problem(node, f"{what}: more than {MAX_OPERANDS} operands. Use a list.")
        if len(kind.lists) > MAX_LISTS:
            self.problem(node, f"{what}: more than {MAX_LISTS} lists.")
        writes = any(
            not o.mode.startswith("in") or o.mode.startswith("inout")
            for o in (*kind.outs, *kind.lists)
        )
        if not writes:
            self.problem(node, f"{what}: nothing is written. Give it an output.")
        if any(o.mode == "fill" for o in kind.outs) and not kind.two_step:
            self.problem(node, f"{what}: mode 'fill' needs an output of mode 'count'.")
        later = [bool(o.cap) for o in kind.ins]
        if sorted(later) != later:
            self.problem(node, f"{what}: an input that needs a capability comes after the others.")
        if kind.level == "fused" and not kind.decompose:
            self.problem(node, f"{what}: a fused kind needs key 'decompose'.")


def load_kinds(path: Path) -> list[Kind]:
    """The kinds of the file, in slot order. Raises KindsError."""
    reader = KindsReader(path)
    root = reader.compose("version, kinds")
    top = reader.mapping(root, "file")
    reader.known_keys(top, "", ("version", "kinds"))
    for required in ("version", "kinds"):
        if required not in top:
            reader.problem(root, f"key '{required}' is missing. Expected keys: version, kinds.")
    if "version" in top:
        reader.choice(top["version"][1], "key 'version'", ("1",))
    kinds = []
    if "kinds" in top:
        kinds = [reader.kind(n) for n in reader.sequence(top["kinds"][1], "key 'kinds'")]
        kinds = [k for k in kinds if k is not None]
    check_together(reader, kinds)
    if reader.problems:
        raise KindsError("\n".join(reader.problems))
    return sorted(kinds, key=lambda k: k.slot)


def check_together(reader: KindsReader, kinds: list[Kind]) -> None:
    def problem(kind: Kind, text: str) -> None:
        reader.problems.append(f"{reader.path}:{kind.line}: kind '{kind.name}': {text}")

    slots: dict[int, Kind] = {}
    names: dict[str, Kind] = {}
    for kind in kinds:
        if kind.slot and kind.slot in slots:
            free = max(slots) + 1
            problem(kind, f"slot {kind.slot} belongs to '{slots[kind.slot].name}'. Free: {free}.")
        if kind.name in names:
            problem(kind, "the name is there twice.")
        slots.setdefault(kind.slot, kind)
        names.setdefault(kind.name, kind)
    macros: dict[str, str] = {}
    for kind in kinds:
        for other in kind.decompose:
            if other not in names:
                problem(
                    kind, f"key 'decompose' names '{other}', which is no kind{near(other, names)}."
                )
        for macro in macros_of(kind):
            if macros.setdefault(macro, kind.name) != kind.name:
                problem(
                    kind,
                    f"{macro} is also made by kind '{macros[macro]}'. Rename a code or a value.",
                )


def macros_of(kind: Kind) -> list[str]:
    upper = kind.name.upper()
    return [f"NPU_{upper}_{code.upper()}" for code, _ in kind.codes] + [
        f"NPU_{upper}_{a.name.upper()}_{v.upper()}" for a in kind.attrs for v in a.values
    ]
