# SPDX-License-Identifier: Apache-2.0
"""The texts made from the kinds: C header, C++ builders, Markdown table."""

from __future__ import annotations

import textwrap

from kinds_model import Attr, Kind, Operand

NOTICE = "Made from ops/kinds.yaml by codegen/kinds.py; do not edit."
PLAN_MACRO = {"none": "NPU_PLAN_NONE", "dtype": "NPU_PLAN_BY_DTYPE", "shape": "NPU_PLAN_BY_SHAPE"}
KEY_MACRO = {"": "0u", "key": "NPU_KEY_VALUE", "class": "NPU_KEY_CLASS"}
LEVEL_FLAGS = {"standard": [], "optional": ["NPU_KIND_OPTIONAL"], "fused": ["NPU_KIND_FUSED"]}
KEY_MARK = {"": "", "key": "*", "class": "~"}
MINOR_OF = {
    "epilogue": "1.1",
    "bias_gradient": "1.1",
    "epilogue_grad": "1.2",
    "dropout_rule": "1.2",
}
MODE_FLAGS = {
    "in": "NPU_MODE_IN",
    "out": "NPU_MODE_OUT",
    "inout": "NPU_MODE_INOUT",
    "count": "NPU_MODE_COUNT",
    "fill": "NPU_MODE_FILL",
}

PREAMBLE = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of operators: slots, codes, attribute structs, unpackers.
 * %s
 *
 * A driver's run looks at call->slot and calls the kind's unpacker, which gives
 * operands by name (NULL: an optional one is absent) and a copy of the
 * attributes (fields a caller of an older minor does not know are zero).
 */
#ifndef NPU_KINDS_H
#define NPU_KINDS_H

#include <string.h>

#include "npu/op.h"

/* Attribute structs have no hidden padding: their size is what it seems. */
#ifdef __cplusplus
#define NPU_ATTR_LAYOUT(type, bytes) static_assert(sizeof(type) == bytes, #type)
extern "C" {
#else
#define NPU_ATTR_LAYOUT(type, bytes) _Static_assert(sizeof(type) == bytes, #type)
#endif

/* ---- operands of a call ---- */

static inline const npu_tensor* npu_call_out(const npu_call* call, uint32_t i) {
  if (i >= call->n_out || call->tensors[i].dtype == NPU_ABSENT) return NULL;
  return &call->tensors[i];
}
static inline const npu_tensor* npu_call_in(const npu_call* call, uint32_t i) {
  if (i >= call->n_in) return NULL;
  i += call->n_out;
  return call->tensors[i].dtype == NPU_ABSENT ? NULL : &call->tensors[i];
}
static inline const npu_list* npu_call_list(const npu_call* call, uint32_t i) {
  if (i >= call->n_lists || call->lists[i].n == 0) return NULL;
  return &call->lists[i];
}
static inline void npu_call_attrs(
    const npu_call* call, void* attrs, uint32_t bytes) {
  uint32_t given = call->attr_bytes < bytes ? call->attr_bytes : bytes;
  memset(attrs, 0, bytes);
  if (given != 0) memcpy(attrs, call->attrs, given);
}

/* ---- what is known of a kind ---- */

#define NPU_MODE_IN 1u
#define NPU_MODE_OUT 2u
#define NPU_MODE_INOUT 3u /* read, then overwritten */
#define NPU_MODE_COUNT 4u /* written by the first call of a count/fill pair */
#define NPU_MODE_FILL 5u  /* written by the second */

typedef struct npu_operand_info {
  const char* name;
  uint32_t mode;
  uint32_t optional;
  uint64_t dtypes; /* 0 = any */
  uint32_t cap; /* NPU_CAP_* a kernel needs to be given it; 0 = none */
} npu_operand_info;

#define NPU_KEY_VALUE 1u /* the attribute's bytes */
#define NPU_KEY_CLASS 2u /* whether it is 0, 1 or another number */

typedef struct npu_attr_info {
  const char* name;
  const char* type;
  uint32_t offset;
  uint32_t bytes;
  uint32_t key;   /* NPU_KEY_*: what the plan key has of it; 0 = nothing */
  uint32_t limit; /* enum and bool: one past the largest value; 0 = free */
  uint32_t cap;   /* NPU_CAP_* a kernel needs to see cap_from or more; 0 = none */
  uint32_t cap_from; /* 1, but for an enum whose later values need the cap */
} npu_attr_info;

#define NPU_KIND_TWO_STEP 1u /* a count call, then a fill call */
#define NPU_KIND_OPTIONAL 2u /* few drivers have it; other rungs serve it */
#define NPU_KIND_FUSED 4u    /* always has a decomposition */
#define NPU_KIND_LATER_ATTRS 8u /* some attributes or operands need a cap */
/* Values between two sums may be rounded to the operands' dtype. */
#define NPU_KIND_ROUNDS_BETWEEN 16u
#define NPU_KIND_RESERVED 32u /* no operator asks for it yet */

typedef struct npu_kind_info {
  const char* name;
  const char* family;
  uint32_t slot;
  uint32_t flags;
  uint32_t plan_use; /* the most a driver may ask for: NPU_PLAN_* */
  uint32_t n_codes;  /* at least 1 */
  const char* const* codes;
  uint32_t n_out;
  uint32_t n_in;
  uint32_t n_lists;
  uint32_t attr_bytes;
  const npu_operand_info* operands; /* outputs, inputs, lists */
  const npu_attr_info* attrs;
  uint32_t n_attrs;
  uint32_t plan_use_1_0; /* the most a driver of contract 1.0 may ask for */
  uint32_t plan_use_1_1; /* ... and one of 1.1 */
} npu_kind_info;
"""


def comment(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(text, 74 - len(indent), break_long_words=False)
    return f"{indent}/* " + f"\n{indent} * ".join(lines) + " */\n"


def layout(attrs: tuple[Attr, ...]) -> tuple[list[tuple[str, Attr | None, int]], int]:
    """Fields in order as (declaration, attribute or None for padding, offset), and the size."""
    fields: list[tuple[str, Attr | None, int]] = [("uint32_t size", None, 0)]
    offset, pads, align = 4, 0, 4

    def pad(to: int) -> None:
        nonlocal offset, pads
        for bytes_, c_type in ((2, "uint16_t"), (4, "uint32_t")):
            if offset % to and (offset % (bytes_ * 2) or bytes_ == 4) and to > bytes_:
                fields.append((f"{c_type} reserved{pads}", None, offset))
                pads += 1
                offset += bytes_

    for attr in attrs:
        pad(attr.alignment)
        dims = f"[{attr.length}]" if attr.length else ""
        fields.append((f"{attr.c_type} {attr.name}{dims}", attr, offset))
        offset += attr.bytes
        align = max(align, attr.alignment)
    pad(align)
    assert offset % align == 0, attrs
    return fields, offset


def dtype_mask(operand: Operand) -> str:
    return " | ".join(f"NPU_DTYPE_BIT(NPU_{d})" for d in operand.dtypes) or "0"


def attr_type(attr: Attr) -> str:
    if attr.values:
        return "enum"
    return f"{attr.type}[{attr.length}]" if attr.length else attr.type


def cap_macro(attr: Attr | Operand) -> str:
    return f"NPU_CAP_{attr.cap.upper()}" if attr.cap else "0u"


def operand_line(kind: Kind) -> str:
    parts = []
    for title, operands in (("outputs", kind.outs), ("inputs", kind.ins), ("lists", kind.lists)):
        if operands:
            names = (o.name + (f" ({' '.join((o.mode, *o.classes))})") for o in operands)
            parts.append(f"{title}: " + ", ".join(names))
    return "; ".join(parts)


def attrs_struct(kind: Kind) -> str:
    fields, size = layout(kind.attrs)
    text = f"typedef struct npu_{kind.name}_attrs {{\n"
    for declaration, attr, _ in fields:
        note = ""
        if attr is not None and attr.type == "bool":
            note = " /* 0 or 1 */"
        elif attr is not None and attr.type == "dims":
            note = " /* bit i = dimension i */"
        text += f"  {declaration};{note}\n"
    text += f"}} npu_{kind.name}_attrs;\n"
    text += f"NPU_ATTR_LAYOUT(npu_{kind.name}_attrs, {size}u);\n"
    return text


def args_struct(kind: Kind) -> str:
    text = f"typedef struct npu_{kind.name}_args {{\n"
    for operand in (*kind.outs, *kind.ins):
        text += f"  const npu_tensor* {operand.name};\n"
    for operand in kind.lists:
        text += f"  const npu_list* {operand.name};\n"
    if kind.attrs:
        text += f"  npu_{kind.name}_attrs attrs;\n"
    text += f"}} npu_{kind.name}_args;\n"
    text += f"static inline npu_{kind.name}_args npu_{kind.name}_unpack(\n"
    text += "    const npu_call* call) {\n"
    text += f"  npu_{kind.name}_args args;\n"
    for operands, getter in ((kind.outs, "out"), (kind.ins, "in"), (kind.lists, "list")):
        for i, operand in enumerate(operands):
            text += f"  args.{operand.name} = npu_call_{getter}(call, {i});\n"
    if kind.attrs:
        text += "  npu_call_attrs(call, &args.attrs, sizeof(args.attrs));\n"
    return text + "  return args;\n}\n"


def kind_section(kind: Kind) -> str:
    upper = kind.name.upper()
    text = f"\n/* ---- {kind.name} ({kind.family}) ---- */\n\n"
    text += comment(" ".join(filter(None, (kind.doc, operand_line(kind) + "."))))
    text += f"#define NPU_KIND_{upper} {kind.slot}u\n"
    for number, (code, doc) in enumerate(kind.codes):
        if doc:
            text += comment(doc)
        text += f"#define NPU_{upper}_{code.upper()} {number}u\n"
    if kind.codes:
        text += f"#define NPU_{upper}_CODES {len(kind.codes)}u\n"
    for attr in kind.attrs:
        for number, value in enumerate(attr.values):
            text += f"#define NPU_{upper}_{attr.name.upper()}_{value.upper()} {number}u\n"
    if kind.attrs:
        text += attrs_struct(kind)
    return text + args_struct(kind)


def info_tables(kind: Kind) -> str:
    text = ""
    codes = [code for code, _ in kind.codes] or [kind.name]
    text += f"  static const char* const {kind.name}_codes[] = {{\n"
    text += textwrap.fill(
        ", ".join(f'"{c}"' for c in codes), 78, initial_indent="      ", subsequent_indent="      "
    )
    text += "};\n"
    text += f"  static const npu_operand_info {kind.name}_operands[] = {{\n"
    for operand in (*kind.outs, *kind.ins, *kind.lists):
        mode = MODE_FLAGS[operand.mode.rstrip("?")]
        optional = int(operand.mode.endswith("?"))
        text += f'      {{"{operand.name}", {mode}, {optional}u,\n'
        text += f"       {dtype_mask(operand)}, {cap_macro(operand)}}},\n"
    text += "  };\n"
    if kind.attrs:
        text += f"  static const npu_attr_info {kind.name}_attrs[] = {{\n"
        for _, attr, offset in layout(kind.attrs)[0]:
            if attr is None:
                continue
            limit = len(attr.values) or (2 if attr.type == "bool" else 0)
            text += (
                f'      {{"{attr.name}", "{attr_type(attr)}", {offset}u, {attr.bytes}u, '
                f"{KEY_MACRO[attr.key]}, {limit}u, {cap_macro(attr)}, {attr.cap_from}u}},\n"
            )
        text += "  };\n"
    return text


def info_row(kind: Kind) -> str:
    flags = (["NPU_KIND_TWO_STEP"] if kind.two_step else []) + LEVEL_FLAGS[kind.level]
    flags += ["NPU_KIND_LATER_ATTRS"] if any(a.cap for a in (*kind.attrs, *kind.ins)) else []
    flags += ["NPU_KIND_ROUNDS_BETWEEN"] if kind.intermediate else []
    flags += ["NPU_KIND_RESERVED"] if kind.reserved else []
    attr_bytes = layout(kind.attrs)[1] if kind.attrs else 0
    attrs = f"{kind.name}_attrs" if kind.attrs else "NULL"
    return (
        f'      {{"{kind.name}", "{kind.family}", {kind.slot}u, {" | ".join(flags) or "0u"},\n'
        f"       {PLAN_MACRO[kind.plan]}, {max(len(kind.codes), 1)}u, {kind.name}_codes,\n"
        f"       {len(kind.outs)}u, {len(kind.ins)}u, {len(kind.lists)}u, {attr_bytes}u,\n"
        f"       {kind.name}_operands, {attrs}, {len(kind.attrs)}u, "
        f"{PLAN_MACRO[kind.plan_1_0]},\n       {PLAN_MACRO[kind.plan_1_1]}}},\n"
    )


def look_up(kinds: list[Kind]) -> str:
    text = f"\n/* ---- all kinds ---- */\n\n#define NPU_KIND_COUNT {len(kinds)}u\n"
    text += (
        f"#define NPU_KIND_LIMIT {kinds[-1].slot + 1}u /* one past the last standard slot */\n\n"
    )
    text += "/* The kinds in slot order; NULL when i is not below NPU_KIND_COUNT. */\n"
    text += "static inline const npu_kind_info* npu_kind_at(uint32_t i) {\n"
    text += "".join(info_tables(kind) for kind in kinds)
    text += "  static const npu_kind_info rows[] = {\n"
    text += "".join(info_row(kind) for kind in kinds)
    text += "  };\n  return i < NPU_KIND_COUNT ? &rows[i] : NULL;\n}\n\n"
    index = {kind.slot: i for i, kind in enumerate(kinds)}
    numbers = [str(index.get(slot, 255)) for slot in range(kinds[-1].slot + 1)]
    text += "/* NULL for a slot that is not standard. */\n"
    text += "static inline const npu_kind_info* npu_kind_of(uint32_t slot) {\n"
    text += "  static const uint8_t row[] = {\n"
    text += textwrap.fill(
        ", ".join(numbers), 78, initial_indent="      ", subsequent_indent="      "
    )
    text += "};\n  return slot < NPU_KIND_LIMIT ? npu_kind_at(row[slot]) : NULL;\n}\n"
    return text + EPILOGUE


EPILOGUE = """
/* "?" for a slot that is not standard. */
static inline const char* npu_kind_name(uint32_t slot) {
  const npu_kind_info* info = npu_kind_of(slot);
  return info != NULL ? info->name : "?";
}

/* The kind's own name when it has no codes; "?" for an unknown one. */
static inline const char* npu_code_name(uint32_t slot, uint32_t code) {
  const npu_kind_info* info = npu_kind_of(slot);
  return info != NULL && code < info->n_codes ? info->codes[code] : "?";
}

/* 0 when there is no standard kind of that name. */
static inline uint32_t npu_kind_find(const char* name) {
  uint32_t i;
  for (i = 0; i < NPU_KIND_COUNT; ++i) {
    if (strcmp(npu_kind_at(i)->name, name) == 0) return npu_kind_at(i)->slot;
  }
  return 0;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* NPU_KINDS_H */
"""


def kinds_header(kinds: list[Kind]) -> str:
    return PREAMBLE % NOTICE + "".join(kind_section(kind) for kind in kinds) + look_up(kinds)


# ---- the host side's builders -------------------------------------------------


def builder(kind: Kind) -> str:
    """One function, and another one that takes the inputs of later minors too."""
    plain = [o for o in kind.ins if not o.cap]
    text = builder_of(kind, kind.name, plain)
    if len(plain) < len(kind.ins):
        later = "_".join(o.name for o in kind.ins if o.cap)
        text += builder_of(kind, f"{kind.name}_with_{later}", kind.ins)
    return text


def builder_of(kind: Kind, name: str, ins) -> str:
    parameters = ["Call& call"]
    body = f"  assert(call.frame().slot == NPU_KIND_{kind.name.upper()});\n"
    for operands, add in ((kind.outs, "output"), (ins, "input")):
        for operand in operands:
            pointer = "*" if operand.optional else "&"
            parameters.append(f"const npu_tensor{pointer} {operand.name}")
            value = (
                f"{operand.name} ? *{operand.name} : npu_tensor{{}}"
                if operand.optional
                else operand.name
            )
            body += f"  call.add_{add}({value});\n"
    for operand in kind.lists:
        pointer = "*" if operand.optional else "&"
        parameters.append(f"const npu_list{pointer} {operand.name}")
        value = (
            f"{operand.name} ? *{operand.name} : npu_list{{}}" if operand.optional else operand.name
        )
        body += f"  call.add_list({value});\n"
    if kind.attrs:
        parameters.append(f"npu_{kind.name}_attrs& attrs")
        body += "  attrs.size = sizeof(attrs);\n  call.set_attrs(attrs);\n"
    arguments = ",\n    ".join(parameters)
    return f"\ninline void {name}(\n    {arguments}) {{\n{body}}}\n"


def builders(kinds: list[Kind]) -> str:
    return (
        "// SPDX-License-Identifier: Apache-2.0\n"
        "// Fills a call frame from named operands, one function per kind.\n"
        f"// {NOTICE}\n"
        "//\n"
        "// Optional operands are pointers, nullptr when absent. Attributes are\n"
        "// referenced, so they live as long as the call.\n"
        "#pragma once\n\n#include <cassert>\n\n"
        '#include "driver/call.h"\n#include "npu/kinds.h"\n\n'
        "namespace npu::build {\n"
        + "".join(builder(kind) for kind in kinds)
        + "\n} // namespace npu::build\n"
    )


# ---- the guide's table ----------------------------------------------------------


def guide_table(kinds: list[Kind]) -> str:
    text = (
        "# The kinds\n\n"
        f"<!-- {NOTICE} -->\n\n"
        "Modes: `out` is fully overwritten, `inout` read and overwritten, `?` marks an operand\n"
        "that may be absent, `count` and `fill` belong to the first and second call of a pair.\n"
        "A word after the mode limits the dtypes. `*` marks attributes in the plan key, `~` those\n"
        "of which only 0, 1 or another number counts; a list\n"
        "operand is written `name[]`. An attribute of type `dims` is a mask: bit i is dimension i.\n\n"
        "`plan` is the most that `npu_op_caps.plan_use` may ask for; `made of` names the kinds that\n"
        "serve this one on a driver that lacks it. *Capabilities asked* are the flags and fields of\n"
        "`npu_op_caps` that matter for the kind: without `strided`, say, its operands are made\n"
        "contiguous; `accumulate` is the mask of dtypes a kernel can sum in.\n"
    )
    families = list(dict.fromkeys(kind.family for kind in kinds))
    for family in families:
        text += f"\n## {family}\n\n| slot | kind | operands | attributes | plan | made of |\n"
        text += "|---|---|---|---|---|---|\n"
        members = [kind for kind in kinds if kind.family == family]
        for kind in members:
            operands = [
                f"{o.name}: {' '.join((o.mode, *o.classes))}" for o in (*kind.outs, *kind.ins)
            ]
            operands += [f"{o.name}[]: {' '.join((o.mode, *o.classes))}" for o in kind.lists]
            attrs = [f"{a.name}{KEY_MARK[a.key]}: {attr_type(a)}" for a in kind.attrs]
            words = [kind.level] if kind.level != "standard" else []
            words += ["reserved"] if kind.reserved else []
            level = f" ({', '.join(words)})" if words else ""
            text += (
                f"| {kind.slot} | `{kind.name}`{level} | {'<br>'.join(operands)} "
                f"| {'<br>'.join(attrs)} | {kind.plan} | {', '.join(kind.decompose)} |\n"
            )
        for kind in members:
            notes = [kind.doc] if kind.doc else []
            if kind.codes:
                notes.append(
                    "Codes: " + ", ".join(f"{c} ({d})" if d else c for c, d in kind.codes) + "."
                )
            enums = [f"{a.name} = {' / '.join(a.values)}" for a in kind.attrs if a.values]
            if enums:
                notes.append("Values: " + "; ".join(enums) + ".")
            for a in kind.attrs:
                if a.cap and a.cap_from > 1:
                    later = " and ".join(f"`{v}`" for v in a.values[a.cap_from :])
                    notes.append(f"{later} need `{cap_macro(a)}` ({MINOR_OF[a.cap]}).")
                elif a.cap:
                    notes.append(
                        f"`{a.name}` is set only for kernels with `{cap_macro(a)}` "
                        f"({MINOR_OF[a.cap]})."
                    )
            for o in kind.ins:
                if o.cap:
                    notes.append(
                        f"`{o.name}` is given only to kernels with `{cap_macro(o)}` "
                        f"({MINOR_OF[o.cap]})."
                    )
            if kind.plan != kind.plan_1_0:
                notes.append(f"Planned since {'1.1' if kind.plan == kind.plan_1_1 else '1.2'}.")
            if kind.intermediate:
                notes.append("Values between two sums may be rounded to the operands' dtype.")
            if kind.reserved:
                notes.append("Reserved: no operator asks for it yet, so a driver needs no kernel.")
            if kind.caps:
                notes.append("Capabilities asked: " + ", ".join(kind.caps) + ".")
            if kind.interface:
                notes.append(f"A driver that has it also offers `{kind.interface}`.")
            if notes:
                text += f"\n**{kind.name}.** {' '.join(notes)}\n"
    return text
