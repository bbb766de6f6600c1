# SPDX-License-Identifier: Apache-2.0
"""Reads ops/aten/*.yaml and users' operator packs into the model of aten_model.py.

The format is the one of the API guide, with our additions:

    backend: NPU
    cpp_namespace: at_npu::native    # where the functions written by hand live
    scalar_by_value: true            # optional: they take at::Scalar, not const at::Scalar&
    supported:                       # overloads that ATen has
      - add.Tensor                   # the function is written by hand, declared and registered for it
      - func: cat.out                # the same, and the kinds it calls (for the list of operators)
        uses: [cat, copy]
      - func: sum.IntList_out        # a structured group: shapes by PyTorch, frame filled by hand
        kind: reduce
        impl: reduce_out             # npu_reason reduce_out(NativeSite&, …, const at::Tensor& out)
      - func: glu.out                # any group: outputs and frame by hand, the rest generated
        kind: binary
        attempt: glu                 # npu_reason glu(NativeSite&, Outputs&, const at::Tensor& self, …)
        with: {spatial: 2}           # constants that the function gets after site and outputs
        arguments: [self, ~, 2]      # what it gets then: arguments, ~ for no tensor, constants; default:
                                     # all. A tensor that may be absent comes undefined.
        forms: named                 # only the overload named, not its group
        sites: {apply: unary.exp}    # further sites that it gets after its own: kind.code
        wants: [self]                # tensors the driver is asked about first; default: all inputs
        anyway: {is_vector: self}    # predicates, or a bool argument: where they hold the driver is not
                                     # asked, the function does it
        direct: glu_direct           # bool glu_direct(Outputs&, …): the CPU kernel on npu tensors themselves,
                                     # tried before the CPU function (src/aten/host_device/direct.h)
        cpu: layer_norm_on_cpu       # R layer_norm_on_cpu(NativeSite&, npu_reason, …): takes the functional form
                                     # to the CPU rung and gives its results other dtypes or layouts
        cpu_results: wide_statistics # R wide_statistics(R, const at::Tensor&): gives what the CPU rung made other dtypes,
                                     # by the first tensor; functional form only
        otherwise: composite         # not the CPU function: PyTorch's composite, on npu tensors
      - func: erfinv.out             # generated: every form of the group becomes a call of the kind
        kind: unary
        code: erfinv                 # default: the operator's name
        operands: {in: self}         # default: by name, then in order
        attrs: {a: alpha, b: 1.0}    # attribute of the kind: argument or constant; default: by name
        ignore: [dtype]              # arguments the kernel does not need
        check: {dtype: {same_dtype: [self, other]}, size: {fits: self}}
                                     # predicates, by the reason for the report; where one does not hold the
                                     # CPU gets the call, and complains. They are functions of
                                     # src/aten/ops/predicates.h, or beside the adapter: bool fits(…)
        direct: erfinv               # PyTorch's CPU kernel (src/aten/host_device/cpu_kernels.h) that may have the
                                     # npu tensors themselves, where the driver has none
        rule: unary                  # no meta that builds a TensorIterator: how dtypes go (MapRule, map.h)
        floating: true               # … and only floating point operands do
        result: bool                 # floating point operands give bools
        fast: false                  # the meta checks more than dtypes and sizes: always ask it
    foreach:                         # a table of torch._foreach_*: both forms of each overload
      - names: [add, sub]
        kind: binary                 # code: default the name
        overloads: [Scalar, List]    # default: the one without a name
        if: {Tensor: {is_one: alpha}}  # predicates, for an overload to go in one call
    by_hand:                         # registered in C++ (TORCH_LIBRARY_IMPL): listed, nothing is made
      - copy_
      - func: _foreach_powsum.Scalar
        uses: multi_reduce
        optional: true               # not every torch has it
    autograd:                        # the same names, forward and backward written by hand
      - dropout
    custom:                          # new operators by full schema, of namespace npu or of one's own
      - func: npu_dtype_cast(Tensor self, ScalarType dtype) -> Tensor
        variants: function, method
    custom_autograd:
      - func: npu_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor

Whatever is wrong is collected and raised at once (YamlError), one problem a line, each with file,
line, key, reason and the nearest right name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import yaml
from aten_fit import Fit
from aten_foreach_yaml import read_foreach
from aten_model import SECTIONS, Operator, Options, Pack, Where
from aten_options import IDENTIFIER, OPTION_KEYS, read_options
from aten_torch import TorchOps
from kinds_model import Kind
from torchgen.model import Location, NativeFunction, SchemaKind, Variant
from yaml_reader import Reader, YamlError, near

TOP_KEYS = ("backend", "cpp_namespace", "scalar_by_value", *SECTIONS)
FIT_KEYS = ("code", "operands", "attrs", "ignore")
ATEN_KEYS = ("func", "kind", "impl", "attempt", "uses", "optional", *FIT_KEYS, *OPTION_KEYS)
CUSTOM_KEYS = ("func", "variants")
NAMESPACE = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*")
FORMS = (SchemaKind.out, SchemaKind.functional, SchemaKind.inplace, SchemaKind.mutable)


class PackReader(Reader):
    def __init__(self, path: Path, torch: TorchOps, kinds: dict[str, Kind]):
        super().__init__(path)
        self.torch, self.kinds = torch, kinds
        self.operators: list[Operator] = []
        self.namespace = "at_npu::native"
        self.scalar_by_value = False

    def read(self) -> list[Operator]:
        root = self.compose("backend, cpp_namespace, supported")
        top = self.mapping(root, "file")
        self.known_keys(top, "", TOP_KEYS)
        if "backend" in top:
            self.choice(top["backend"][1], "key 'backend'", ("NPU", "PrivateUse1"))
        elif top:
            self.problem(root, "key 'backend' is missing. Write 'backend: NPU'.")
        if "cpp_namespace" in top:
            self.namespace = self.text(top["cpp_namespace"][1], "key 'cpp_namespace'")
            if not NAMESPACE.fullmatch(self.namespace):
                self.problem(
                    top["cpp_namespace"][1],
                    f"key 'cpp_namespace': '{self.namespace}' is not a C++ namespace. "
                    "Write for example at_npu::native.",
                )
        elif top:
            self.problem(
                root, "key 'cpp_namespace' is missing. Write 'cpp_namespace: at_npu::native'."
            )
        if "scalar_by_value" in top:
            node = top["scalar_by_value"][1]
            word = self.choice(node, "key 'scalar_by_value'", ("false", "true"))
            self.scalar_by_value = word == "true"
        for section in SECTIONS:
            if section in top:
                self.section(section, top[section][1])
        return self.operators

    # ---- entries -----------------------------------------------------------------

    def section(self, section: str, node) -> None:
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
            return
        if isinstance(node, yaml.ScalarNode):
            self.without_dashes(section, node)
        elif isinstance(node, yaml.MappingNode):
            first = next((k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)), "")
            line = f"- {first}:" if first == "func" else f"- {first}"
            self.problem(
                node,
                f"key '{section}': expected a list, found a mapping. Begin each entry with a dash: "
                f"'{line}'.",
            )
        else:
            for item in node.value:
                if section == "foreach":
                    read_foreach(self, item)
                else:
                    self.entry(section, item)

    def without_dashes(self, section: str, node) -> None:
        """A list whose dashes were forgotten is one long text to YAML; its words are still checked."""
        lines = self.text_of_file.splitlines()[node.start_mark.line : node.end_mark.line + 1]
        words = []
        for offset, line in enumerate(lines):
            start = node.start_mark.column if offset == 0 else 0
            stop = node.end_mark.column if offset == len(lines) - 1 and len(lines) > 1 else None
            text = line[start:stop].split(" #")[0]
            words += [
                (node.start_mark.line + 1 + offset, w) for w in re.split(r"[\s,]+", text) if w
            ]
        if not words:
            words = [(self.line(node), node.value)]
        self.problem(
            node,
            f"key '{section}': expected a list, found text. Begin each entry with a dash: "
            f"'- {words[0][1]}'.",
        )
        for line, word in words:
            if section in ("supported", "autograd") and re.fullmatch(r"[\w.]+", word):
                self.find(line, section, word)

    def entry(self, section: str, node) -> None:
        custom = section.startswith("custom")
        what = f"key '{section}'"
        if isinstance(node, yaml.SequenceNode):
            self.problem(node, f"{what}: an entry is a name or 'func: …', found a list.")
            return
        if isinstance(node, yaml.ScalarNode):
            fields = {"func": (node, node)}
        else:
            fields = self.mapping(node, what)
            self.known_keys(fields, f"{what}: ", CUSTOM_KEYS if custom else ATEN_KEYS)
            if "func" not in fields:
                self.problem(node, f"{what}: an entry has no key 'func'. Begin it '- func: …'.")
                return
        text = self.text(fields["func"][1], f"{what}: key 'func'").strip()
        if not text:
            self.problem(node, f"{what}: an empty entry. Write a name, or remove the dash.")
        elif custom:
            self.custom_entry(section, fields, text)
        else:
            self.aten_entry(section, fields, text)

    def add(self, section, node, name, functions, **more) -> None:
        self.operators.append(
            Operator(
                name=name,
                section=section,
                cpp_namespace=self.namespace,
                functions=tuple(functions),
                group=more.get("group"),
                kind=more.get("kind"),
                code=more.get("code", ""),
                mapping=more.get("mapping"),
                chosen_by=more.get("chosen_by", ""),
                codes=more.get("codes", ()),
                impl=more.get("impl", ""),
                attempt=more.get("attempt", ""),
                options=more.get("options", Options()),
                uses=more.get("uses", ()),
                scalar_by_value=self.scalar_by_value,
                where=Where(self.path, self.line(node)),
            )
        )

    # ---- operators of ATen -------------------------------------------------------

    def find(self, line: int, section: str, name: str) -> NativeFunction | None:
        """The overload of that name; a problem with the nearest right one when there is none."""
        name = name.removeprefix("aten::")
        if name in self.torch.functions:
            return self.torch.functions[name]
        base = name.partition(".")[0]
        others = self.torch.overloads_of.get(base)
        hint = near(name, others or ()) or near(name, self.torch.functions)
        reason = "PyTorch has no such operator"
        if others:
            reason = f"'{base}' has no such overload; it has: {', '.join(others)}"
        self.problem_at(line, f"key '{section}': '{name}': {reason}{hint}.")
        return None

    def aten_entry(self, section: str, fields: dict, text: str) -> None:
        node = fields["func"][1]
        what = f"key '{section}': '{text}'"
        name = text.partition("(")[0]
        if "optional" in fields and name not in self.torch.functions:
            return
        function = self.find(self.line(node), section, name)
        if function is None:
            return
        if "(" in text and " ".join(text.split()) != str(function.func):
            self.problem(
                node, f"{what}: PyTorch's schema is '{function.func}'. Write only '{name}'."
            )
            return
        if self.only_composite(function) and section == "supported":
            self.problem(
                node,
                f"{what}: PyTorch composes it of other operators, gradients included; a kernel "
                "here would lose them. Move it to 'autograd', or support what it calls.",
            )
            return
        uses = self.uses(fields, what)
        if "kind" in fields:
            self.kind_entry(section, fields, what, function)
            return
        for key in ("impl", "attempt", *FIT_KEYS, *OPTION_KEYS):
            if key in fields:
                self.problem(
                    fields[key][0],
                    f"{what}: key '{key}' needs key 'kind': without it the C++ is all yours.",
                )
        self.add(section, node, str(function.func.name), (function,), uses=uses)

    def uses(self, fields: dict, what: str) -> tuple[Kind, ...]:
        if "uses" not in fields:
            return ()
        node = fields["uses"][1]
        items = (
            [node]
            if isinstance(node, yaml.ScalarNode)
            else self.sequence(node, f"{what}: key 'uses'")
        )
        found = [self.kind_named(item, f"{what}: key 'uses'") for item in items]
        if "kind" in fields:
            self.problem(fields["uses"][0], f"{what}: key 'uses' is for functions written by hand.")
        return tuple(kind for kind in found if kind)

    def kind_named(self, node, what: str) -> Kind | None:
        name = self.text(node, what)
        if name not in self.kinds:
            self.problem(
                node, f"{what}: '{name}' is no kind of ops/kinds.yaml{near(name, self.kinds)}."
            )
        return self.kinds.get(name)

    def kind_entry(self, section: str, fields: dict, what: str, function: NativeFunction) -> None:
        kind = self.kind_named(fields["kind"][1], f"{what}: key 'kind'")
        if section != "supported":
            self.problem(
                fields["kind"][0],
                f"{what}: key 'kind' belongs to 'supported'; what '{section}' lists is written by hand.",
            )
            return
        if kind is None:
            return
        group, functions = self.whole_group(function)
        fit = Fit(self, fields, what, kind, functions[0])
        options = read_options(self, fields, what, functions[0])
        name, node = str(function.func.name), fields["func"][1]
        more = {"group": group, "kind": kind, "options": options}
        if "impl" in fields or "attempt" in fields:
            found = self.framed(fields, what, group, options)
            code = fit.only_code()
            if found and code is not None:
                if options.alone:
                    functions = [function]
                elif "attempt" in fields:
                    functions = self.with_cpu_function(functions, function)
                more |= dict(zip(("code", "chosen_by", "codes"), code))
                self.add(section, node, name, functions, **more, **found)
            return
        for key in (
            "with",
            "arguments",
            "sites",
            "forms",
            "wants",
            "anyway",
            "otherwise",
            "cpu",
            "cpu_results",
        ):
            if key in fields:
                self.problem(
                    fields[key][0],
                    f"{what}: key '{key}' belongs beside 'impl' or 'attempt'; here is neither.",
                )
        if options.direct and (group is None or not group.structured):
            self.problem(
                fields["direct"][0], f"{what}: key 'direct' is for structured groups here."
            )
        mapping = fit.mapping()
        if mapping is not None:
            self.add(section, node, name, functions, code=mapping.code, mapping=mapping, **more)

    def framed(self, fields: dict, what: str, group, options: Options) -> dict[str, str]:
        """The function named by key 'impl' or 'attempt', or {} when that cannot be."""
        way = "impl" if "impl" in fields else "attempt"
        key, node = fields[way]
        name = self.text(node, f"{what}: key '{way}'")
        before = len(self.problems)
        for other in ("operands", "attrs", "ignore", "rule", "floating", "result", "fast"):
            if other in fields:
                self.problem(
                    fields[other][0], f"{what}: key '{other}' is the function's own business here."
                )
        if "impl" in fields and "attempt" in fields:
            self.problem(fields["attempt"][0], f"{what}: both 'impl' and 'attempt'. Keep one.")
        if way == "impl" and (group is None or not group.structured):
            self.problem(
                key,
                f"{what}: key 'impl' is for structured groups, and this is none. Write 'attempt' "
                "and let the function set the outputs.",
            )
        for other in ("otherwise", "forms") if way == "impl" else ():
            if other in fields:
                self.problem(fields[other][0], f"{what}: key '{other}' belongs beside 'attempt'.")
        if not IDENTIFIER.fullmatch(name):
            self.problem(node, f"{what}: key '{way}': '{name}' is not a C++ function name.")
        return {way: name} if len(self.problems) == before else {}

    def with_cpu_function(self, functions, named: NativeFunction) -> list[NativeFunction]:
        """The overload that the entry names, and those that the CPU rung can run instead; the rest
        of the group PyTorch composes of these."""
        return [f for f in functions if f is named or str(f.func.name) in self.torch.cpu]

    def only_composite(self, function: NativeFunction) -> bool:
        """Autograd goes through PyTorch's composite: no backend has a kernel of its own."""
        return (
            function.has_composite_implicit_autograd_kernel
            and str(function.func.name) not in self.torch.cpu
        )

    def whole_group(self, function: NativeFunction):
        """The group of a function and its members, out form first."""
        group = self.torch.group_of.get(str(function.func.name))
        if group is None:
            return None, [function]
        members = [f for f in group.functions() if not self.only_composite(f)]
        return group, sorted(members, key=lambda f: FORMS.index(f.func.kind()))

    # ---- new operators -----------------------------------------------------------

    def custom_entry(self, section: str, fields: dict, text: str) -> None:
        node = fields["func"][1]
        what = f"key '{section}': '{text}'"
        if "(" not in text:
            self.problem(
                node,
                f"{what}: a new operator needs its whole schema, for example "
                f"'func: {text}(Tensor self) -> Tensor'.",
            )
            return
        space, _, rest = text.partition("(")[0].rpartition("::")
        if space == "aten" or (space and not IDENTIFIER.fullmatch(space)):
            self.problem(
                node,
                f"{what}: namespace '{space}' is not yours. Leave it out (npu), or write one word of "
                "your own.",
            )
            return
        if space not in ("", "npu") and "variants" in fields:
            self.problem(
                fields["variants"][0], f"{what}: key 'variants' is for operators of namespace npu."
            )
            return
        entry = {"func": text if space else "npu::" + text}
        if "variants" in fields:
            entry["variants"] = self.text(fields["variants"][1], f"{what}: key 'variants'")
            for word in re.split(r"\s*,\s*", entry["variants"]):
                if word not in ("function", "method"):
                    self.problem(
                        fields["variants"][1],
                        f"{what}: key 'variants': '{word}' is not known. Allowed: function, method"
                        f"{near(word, ('function', 'method'))}.",
                    )
                    return
        try:
            function, _ = NativeFunction.from_yaml(
                entry, Location(str(self.path), self.line(node)), set()
            )
        except Exception as error:  # torchgen refuses with whatever exception comes first
            reason = " ".join(str(error).split()) or type(error).__name__
            self.problem(node, f"{what}: not a schema: {reason}.")
            return
        if Variant.method in function.variants and function.func.arguments.self_arg is None:
            self.problem(
                fields["variants"][1],
                f"{what}: key 'variants': a method needs an argument 'self' of type Tensor.",
            )
            return
        self.add(section, node, rest, (function,))


# ---- all files together ----------------------------------------------------------


def check_together(operators: list[Operator], torch: TorchOps) -> list[str]:
    """Overloads that are there twice, and groups torn between backend and autograd."""
    problems = []
    seen: dict[str, Operator] = {}
    for operator in operators:
        for function in operator.functions:
            name = f"{function.namespace}::{function.func.name}"
            first = seen.setdefault(name, operator)
            if first is not operator:
                where = operator.where
                problems.append(
                    f"{where.file}:{where.line}: key '{operator.section}': '{operator.name}': "
                    f"{name} is already at {first.where.file}:{first.where.line} "
                    f"(key '{first.section}', '{first.name}'). Keep one."
                )
    torn: set[int] = set()
    for operator in operators:
        group = torch.group_of.get(operator.name) if not operator.custom else None
        if group is None or id(group) in torn:
            continue
        for function in group.functions():
            other = seen.get(f"aten::{function.func.name}")
            if other is not None and other.autograd != operator.autograd:
                torn.add(id(group))
                where = other.where
                problems.append(
                    f"{where.file}:{where.line}: key '{other.section}': '{other.name}' belongs "
                    f"together with '{operator.name}' ({operator.where.file}:{operator.where.line}, "
                    f"key '{operator.section}'). Put both in one section."
                )
                break
    return problems


def load_pack(files: Iterable[Path], torch: TorchOps, kinds: list[Kind]) -> Pack:
    """The operators of all files, in order. Raises YamlError with every problem found."""
    by_name = {kind.name: kind for kind in kinds}
    operators: list[Operator] = []
    problems: list[str] = []
    for file in files:
        reader = PackReader(file, torch, by_name)
        try:
            operators += reader.read()
        except YamlError as error:
            problems.append(str(error))
        problems += reader.problems
    problems += check_together(operators, torch)
    if problems:
        raise YamlError("\n".join(problems))
    return Pack(tuple(operators), by_name)
