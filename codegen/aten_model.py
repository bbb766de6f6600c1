# SPDX-License-Identifier: Apache-2.0
"""What ops/aten/*.yaml and users' operator packs say, as typed data for the emitters.

`aten_yaml.load_pack(files, torch, kinds)` gives a `Pack`: its `operators` in the order of the files.
An `Operator` is one entry. The sorts, told apart by `mapping`, `impl`, `attempt` and the section:

* by hand (both unset, guide form: `- add.Tensor`): the C++ function is written in `cpp_namespace`
  with the overload's own signature. `functions` holds that one overload.
* `impl` set: a structured group whose shapes and outputs PyTorch's meta settles, and whose frame is
  filled by hand: `npu_reason <cpp_namespace>::<impl>(NativeSite&, …)` takes what torchgen's
  StructuredImplSignature says (outputs last) and answers NPU_REASON_NONE, or why the call goes down
  the ladder. `functions` holds every overload of the group, `kind` and `code` what the site calls.
* `attempt` set: the same for any group, without a meta: `npu_reason <cpp_namespace>::<attempt>(
  NativeSite&, Outputs&, …)` takes the schema's arguments, sets the outputs and runs the driver.
  `functions` holds the overload named and those of its group that have a CPU function.
* `mapping` set: the adapter is generated whole: the entry has `kind:`. `functions` holds every
  overload of the group (out, functional, in-place), `primary` the one to work from (the out form
  where there is one), `group` torchgen's group; `operator.structured` says whether PyTorch's
  structured meta serves it.

* section `foreach`: `functions` holds the forms of one `_foreach_*` overload.
* section `by_hand`: registered in C++, listed only. `functions` holds that one overload.

`uses` names the kinds that hand-written code calls, for the list of operators only.

A `Mapping` says how the schema becomes a call of the kind. All lists are in the kind's order:

    kind, code     the code to call; or `chosen_by` (an argument name) with `codes`, a map from the
                   argument's value (None, a str, bool or int) to the code: div's rounding_mode
    outs[i]        Source for output i of the kind: `result` = index among the schema's returns
    ins[i]         Source for input i: `argument` of type Tensor, Tensor? or Scalar (a Scalar is
                   passed as a 0-dim host scalar)
    lists[i]       Source for list i: an `argument` of type Tensor[], or a `result`
    attrs[i]       Source for attribute i: an `argument`, a `constant`, or `arguments`, one per element
    ignored        arguments that the kernel does not need (dtype, where the meta has settled it)

An absent Source (`source.absent`) leaves an optional operand out and an attribute zero.
Argument names are the schema's and the same in all forms of a group.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kinds_model import Kind
from torchgen.model import NativeFunction, NativeFunctionsGroup, SchemaKind

SECTIONS = ("supported", "foreach", "by_hand", "autograd", "custom", "custom_autograd")
Constant = bool | int | float | str | None


@dataclasses.dataclass(frozen=True)
class Where:
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where an operand or attribute of a kind comes from; at most one field is set."""

    argument: str = ""
    result: int = -1
    constant: Constant = None
    arguments: tuple[str, ...] = ()  # elements of an array attribute

    @property
    def absent(self) -> bool:
        return (
            not self.argument and self.result < 0 and self.constant is None and not self.arguments
        )


@dataclasses.dataclass(frozen=True)
class Mapping:
    kind: Kind
    code: str  # "" when the kind has no codes, or `chosen_by` is set
    chosen_by: str
    codes: tuple[tuple[Constant, str], ...]
    outs: tuple[Source, ...]
    ins: tuple[Source, ...]
    lists: tuple[Source, ...]
    attrs: tuple[Source, ...]
    ignored: tuple[str, ...]

    @property
    def all_codes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c for _, c in self.codes)) if self.chosen_by else (self.code,)


@dataclasses.dataclass(frozen=True)
class Predicate:
    """A C++ function that answers with a bool about arguments; without a name, the argument itself."""

    name: str
    arguments: tuple[str, ...]
    shared: bool = True  # of src/aten/ops/predicates.h; else defined beside the adapter

    @property
    def text(self) -> str:
        return f"ops::{self.name}({', '.join(self.arguments)})" if self.name else self.arguments[0]


@dataclasses.dataclass(frozen=True)
class Options:
    """How the adapter is made; aten_yaml.py explains the keys."""

    constants: tuple[tuple[str, Constant], ...] = ()  # key 'with'
    arguments: tuple[Constant | Source, ...] | None = None
    sites: tuple[tuple[str, Kind, str], ...] = ()  # (name, kind, code)
    wants: tuple[str, ...] | None = None
    anyway: tuple[Predicate, ...] = ()
    direct: str = ""  # C++ function, Note [Direct]
    checks: tuple[tuple[str, tuple[Predicate, ...]], ...] = ()  # (reason, what must hold)
    composite: bool = False  # key 'otherwise'
    cpu: str = ""  # C++ function
    cpu_results: str = ""  # C++ function
    alone: bool = False  # key 'forms'
    rule: str = ""
    floating: bool = False
    bool_result: bool = False  # key 'result'
    fast: bool = True

    @property
    def predicates(self) -> list[Predicate]:
        return [*(p for _, listed in self.checks for p in listed), *self.anyway]


@dataclasses.dataclass(frozen=True)
class Operator:
    name: str  # as written: "erfinv.out", or the name of a custom schema
    section: str  # one of SECTIONS
    cpp_namespace: str
    functions: tuple[NativeFunction, ...]
    group: NativeFunctionsGroup | None
    kind: Kind | None  # what generated code calls
    code: str  # "" when the kind has none, or the mapping chooses among several
    mapping: Mapping | None
    chosen_by: str  # beside impl and attempt, as in Mapping
    codes: tuple[tuple[Constant, str], ...]
    impl: str  # C++ function that fills the frame, or ""
    attempt: str  # C++ function that sets the outputs and fills the frame, or ""
    options: Options
    uses: tuple[Kind, ...]
    scalar_by_value: bool  # C++ takes at::Scalar, as the guide for PyTorch 1.8 prints it
    where: Where

    @property
    def all_codes(self) -> tuple[str, ...]:
        """The codes this entry may call; ("",) for a kind without codes."""
        if self.mapping is not None:
            return self.mapping.all_codes
        return tuple(dict.fromkeys(c for _, c in self.codes)) if self.chosen_by else (self.code,)

    @property
    def primary(self) -> NativeFunction:
        return self.functions[0]

    @property
    def structured(self) -> bool:
        return self.group is not None and self.group.structured

    @property
    def custom(self) -> bool:
        """A new operator in namespace npu, not one of ATen's."""
        return self.section.startswith("custom")

    @property
    def autograd(self) -> bool:
        """Registered for AutogradPrivateUse1: forward and backward are written by hand."""
        return self.section.endswith("autograd")

    def form(self, kind: SchemaKind) -> NativeFunction | None:
        """The out, functional or in-place form this entry registers."""
        return next((f for f in self.functions if f.func.kind() == kind), None)


@dataclasses.dataclass(frozen=True)
class Pack:
    operators: tuple[Operator, ...]
    kinds: dict[str, Kind]
    # What a test saw the driver run: overload -> "kind.code" -> dtypes (aten_list.load_seen).
    seen: dict[str, dict[str, tuple[str, ...]]] = dataclasses.field(default_factory=dict)

    def mapped(self) -> list[Operator]:
        return [o for o in self.operators if o.mapping is not None]

    def framed(self) -> list[Operator]:
        """Entries whose frame is filled by a function written by hand."""
        return [o for o in self.operators if o.impl or o.attempt]

    def foreach(self) -> list[Operator]:
        return [o for o in self.operators if o.section == "foreach"]

    def declared(self) -> list[Operator]:
        """Entries whose C++ is all by hand, declared and registered for it."""
        listed = ("foreach", "by_hand")
        return [o for o in self.operators if o.kind is None and o.section not in listed]
