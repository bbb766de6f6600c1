# SPDX-License-Identifier: Apache-2.0
"""What ops/aten/*.yaml and users' operator packs say, as typed data for the emitters.

`aten_yaml.load_pack(files, torch, kinds)` gives a `Pack`: its `operators` in the order of the files.
An `Operator` is one entry. Three sorts, told apart by `mapping` and `impl`:

* by hand (both unset, guide form: `- add.Tensor`): the C++ function is written in `cpp_namespace`
  with the overload's own signature. `functions` holds that one overload.
* `impl` set: a structured group whose shapes and outputs PyTorch's meta settles, and whose frame is
  filled by hand: `npu_reason <cpp_namespace>::<impl>(NativeSite&, …)` takes what torchgen's
  StructuredImplSignature says (outputs last) and answers NPU_REASON_NONE, or why the call goes down
  the ladder. `functions` holds every overload of the group, `kind` and `code` what the site calls.
* `mapping` set: the adapter is generated whole: the entry has `kind:`. `functions` holds every
  overload of the group (out, functional, in-place), `primary` the one to work from (the out form
  where there is one), `group` torchgen's group; `operator.structured` says whether PyTorch's
  structured meta serves it.

`uses` names the kinds that hand-written code calls, for the list of operators only.

A `Mapping` says how the schema becomes a call of the kind. All lists are in the kind's order:

    kind, code     the code to call; or `chosen_by` (an argument name) with `codes`, a map from the
                   argument's value (None, a str, bool or int) to the code: div's rounding_mode
    outs[i]        Source for output i of the kind: `result` = index among the schema's returns
    ins[i]         Source for input i: `argument` of type Tensor, Tensor? or Scalar (a Scalar is
                   passed as a 0-dim host scalar)
    lists[i]       Source for list i: an `argument` of type Tensor[], or a `result`
    attrs[i]       Source for attribute i: an `argument`, or a `constant`
    ignored        arguments that the kernel does not need (dtype, where the meta has settled it)

An absent Source (`source.absent`) leaves an optional operand out and an attribute zero.
Argument names are the schema's and the same in all forms of a group.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kinds_model import Kind
from torchgen.model import NativeFunction, NativeFunctionsGroup, SchemaKind

SECTIONS = ("supported", "autograd", "custom", "custom_autograd")
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

    @property
    def absent(self) -> bool:
        return not self.argument and self.result < 0 and self.constant is None


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
class Operator:
    name: str  # as written: "erfinv.out", or the name of a custom schema
    section: str  # one of SECTIONS
    cpp_namespace: str
    functions: tuple[NativeFunction, ...]
    group: NativeFunctionsGroup | None
    kind: Kind | None  # what generated code calls
    code: str  # "" when the kind has none, or the mapping chooses among several
    mapping: Mapping | None
    impl: str  # C++ function that fills the frame, or ""
    uses: tuple[Kind, ...]
    scalar_by_value: bool  # C++ takes at::Scalar, as the guide for PyTorch 1.8 prints it
    where: Where

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

    def generated(self) -> list[Operator]:
        return [o for o in self.operators if o.mapping is not None]

    def with_impl(self) -> list[Operator]:
        return [o for o in self.operators if o.impl]

    def by_hand(self) -> list[Operator]:
        return [o for o in self.operators if o.mapping is None and not o.impl]
