# SPDX-License-Identifier: Apache-2.0
"""The names that a graph's file may hold. Every name is looked up in a fixed table; none is followed by its dots.

The rules for operators are those of op_tools/core/allowed_functions.py, which is in the other wheel.
"""

import json
import keyword
import re

import torch
from torch.utils import _pytree as pytree


class BadFile(ValueError):
    """The text is not such a graph."""


class NotWritable(ValueError):
    """The graph holds something that has no form in the file."""


# Operators of these deal with files, processes or raw memory.
_NAMESPACES = frozenset(
    "_test debug_mode_ops debugprims export inductor profiler static_runtime symm_mem".split()
)
# In an operator's name, or in that of a text it takes: it deals with files.
_FILES = re.compile(r"(^|_)(dir|directory|file|filename|folder|load|open|path|save|uri|url)(_|$)")
_NO_COMPUTATION = frozenset(["aten::_print", "npu::_host_function"])
# PyTorch keeps these as numbers, takes any number for one, and looks it up in tables unchecked.
_WORDS = {
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
}
DTYPES = {str(v).removeprefix("torch."): v for v in vars(torch).values() if type(v) is torch.dtype}
# An attacker's factory would be imported: `defaultdict` gets one of these.
_FACTORIES = ("bool", "dict", "float", "int", "list", "set", "str", "tuple")
_MOST_NODES = 10_000


def operator(text) -> torch._ops.OpOverload:
    """The operator that a file calls aten::add.Tensor; BadFile unless a graph may call it."""
    if not isinstance(text, str):
        raise BadFile(f"{text!r} is no operator")
    space, _, rest = text.partition("::")
    name, _, overload = rest.rpartition(".")
    if not all(part.isidentifier() for part in (space, name, overload)):
        raise BadFile(f"{text!r} is no operator")
    try:
        schema = _schema(space, name, overload)
    except RuntimeError:
        raise BadFile(f"there is no operator {text!r} here") from None
    why = _refusal(space, name, schema)
    if why:
        raise BadFile(f"{text!r} {why}: no file may ask for it")
    found = getattr(getattr(getattr(torch.ops, space), name), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise BadFile(f"there is no operator {text!r} here")
    return found


def _schema(space: str, name: str, overload: str):
    if space in ("npu", "atb"):
        from torch_npu import _C

        if name in _C._custom_operators(space):  # defined when first asked for
            getattr(getattr(torch.ops, space), name)
    return torch._C._get_schema(f"{space}::{name}", "" if overload == "default" else overload)


def _refusal(space: str, name: str, schema) -> str:
    if space in _NAMESPACES or f"{space}::{name}" in _NO_COMPUTATION:
        return "does more than compute"
    texts = [a.name for a in schema.arguments if "str" in str(a.type)]
    return "reads or writes files" if any(map(_FILES.search, (name, *texts))) else ""


def check_arguments(target, args: tuple, kwargs: dict) -> None:
    """BadFile where a call does not fit its operator's schema, or has a number for a dtype."""
    if not isinstance(target, torch._ops.OpOverload):
        if kwargs:
            raise BadFile(f"{target.__name__} takes no keywords")
        return
    arguments = target._schema.arguments
    names = [a.name for a in arguments if not a.kwarg_only]
    given = dict(zip(names, args))
    if len(args) > len(names) or given.keys() & kwargs.keys():
        raise BadFile(f"{target} has other arguments")
    given.update(kwargs)
    if given.keys() - {a.name for a in arguments}:
        raise BadFile(f"{target} has other arguments")
    for argument in arguments:
        value = given.get(argument.name)
        kind = _WORDS.get(str(argument.real_type).removeprefix("Optional[").removesuffix("]"))
        if kind is not None and value is not None and not isinstance(value, kind):
            raise BadFile(
                f"{target}: {argument.name} is {value!r}, which is not a torch.{kind.__name__}"
            )


def name(text) -> str:
    """A name that is written into the Python source of the graph."""
    if not isinstance(text, str) or not text.isidentifier() or keyword.iskeyword(text):
        raise BadFile(f"{text!r} is no name")
    return text


def dtype(text) -> torch.dtype:
    found = DTYPES.get(text.removeprefix("torch.")) if isinstance(text, str) else None
    if found is None:
        raise BadFile(f"{text!r} is no dtype")
    return found


def check_tree(text) -> int:
    """The number of leaves of a tree that `treespec_loads` may read; BadFile for all others.
    PyTorch imports the module of a defaultdict's factory and of an enum's class."""
    try:
        protocol, root = json.loads(text)
        rows, leaves = [root], 0
        for row in rows:  # grows while it is read
            leaves += _check_tree_row(row)
            rows += row["children_spec"]
            if len(rows) > _MOST_NODES:
                raise BadFile(f"a tree of more than {_MOST_NODES} parts")
        if protocol != 1 or pytree.treespec_loads(text).num_leaves != leaves:
            raise BadFile("a tree that has another form")
    except BadFile:
        raise
    except Exception as error:
        raise BadFile(f"a tree: {type(error).__name__}: {error}") from None
    return leaves


def _no_enum(part: dict) -> dict:
    if "__enum__" in part:
        raise BadFile("a container that names a member of an enum")
    return part


def _check_tree_row(row: dict) -> int:
    if row.keys() != {"type", "context", "children_spec"} or type(row["children_spec"]) is not list:
        raise BadFile("a tree that has another form")
    kind, context, children = row["type"], row["context"], row["children_spec"]
    if kind is None:
        if context is not None or children:
            raise BadFile("a leaf with content")
        return 1
    if isinstance(context, str) and kind != "collections.namedtuple":
        json.loads(context, object_hook=_no_enum)
    if kind == "collections.defaultdict":
        module, factory = context["default_factory_module"], context["default_factory_name"]
        if module != "builtins" or factory not in _FACTORIES:
            raise BadFile(f"a defaultdict of {module}.{factory}")
        held = context["dict_context"]
    elif kind in ("builtins.dict", "collections.OrderedDict"):
        held = json.loads(context)
    else:
        return 0
    if not isinstance(held, list) or len(held) != len(children):
        raise BadFile(f"a {kind} of {len(children)} values and other keys")
    return 0
