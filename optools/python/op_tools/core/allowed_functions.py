# SPDX-License-Identifier: Apache-2.0
"""What a file may ask to be called: functions of PyTorch's that compute, and nothing else.

A capture or a folder of ditorch's names operators and Python functions. Its author must
not choose what runs here: a name is looked up in fixed tables, never by following its dots, and
no table holds functions that read or write files, hand out memory or look into objects.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import torch

from op_tools.core import _C
from op_tools.core.dotted_names import get_function_from_string
from op_tools.core.errors import CaptureError

# Operators of these deal with files, processes or raw memory.
_NAMESPACES = frozenset(
    "_test debug_mode_ops debugprims export inductor profiler static_runtime symm_mem".split()
)
# In an operator's name, or in that of a text it takes: it deals with files.
_FILES = re.compile(r"(^|_)(dir|directory|file|filename|folder|load|open|path|save|uri|url)(_|$)")
_TEXTS_OUT = frozenset({"aten::_print"})

# Functions without a tensor among their arguments, which torch.overrides does not list.
_FACTORIES = (
    "arange as_tensor bartlett_window blackman_window complex empty empty_strided eye full "
    "full_like hamming_window hann_window kaiser_window linspace logspace ones ones_like rand "
    "rand_like randint randint_like randn randn_like randperm range scalar_tensor tensor "
    "tril_indices triu_indices zeros zeros_like"
).split()
# Hold bindings of operators and nothing else.
_BINDINGS = [f"torch._C._{name}" for name in "fft linalg nested nn sparse special".split()]
_OPERATORS = {
    f"__{prefix}{name}__"
    for prefix in ("", "i", "r")
    for name in (
        "add and div eq floordiv ge gt le lshift lt matmul mod mul ne or pow rshift sub truediv xor"
    ).split()
}
_OPERATORS.update(
    (
        "__bool__ __complex__ __contains__ __float__ __getitem__ __index__ __int__ __invert__ "
        "__len__ __long__ __nonzero__ __reversed__ __setitem__"
    ).split()
)
_PROPERTIES = frozenset(f"{name}.__get__" for name in "H T data grad imag mH mT real".split())
# Methods that are no arithmetic: memory, other processes, functions to be called, other types.
_NO_ARITHMETIC = frozenset(
    "apply_ as_subclass const_data_ptr data_ptr map2_ map_ module_load record_stream "
    "register_hook register_post_accumulate_grad_hook set_ share_memory_ storage storage_type "
    "untyped_storage".split()
)


def resolve(name: str, allow: Iterable[str] = ()) -> Callable:
    """The function an operator's or a Python API's name stands for; CaptureError for all others.
    Packages other than torch have to be allowed by who runs it, never by a file."""
    name = dispatcher_name(name)
    if "::" in name:
        return _operator(name)
    package = name.split(".")[0]
    if package in set(allow):
        return _allowed(name, package)
    found = _functions().get(name)
    if found is None:
        hint = f"; `--allow {package}` allows that package's"
        hint = hint if package.isidentifier() and package != "torch" else ""
        raise CaptureError(f"{_shown(name)} is no function of PyTorch's that can be replayed{hint}")
    return found


def dispatcher_name(name: str) -> str:
    """torch.ops.aten.add.Tensor, as `op-tools export` writes it -> aten::add.Tensor."""
    parts = name.removeprefix("torch.ops.").split(".")
    if not name.startswith("torch.ops.") or len(parts) != 3:
        return name
    namespace, own, overload = parts
    return f"{namespace}::{own}" + ("" if overload == "default" else f".{overload}")


def python_name(op: str) -> str:
    """aten::add.Tensor -> torch.ops.aten.add.Tensor; a Python API's name is that already."""
    if "::" not in op:
        return op
    namespace, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    return f"torch.ops.{namespace}.{name}.{overload or 'default'}"


# ---- operators ---------------------------------------------------------------------
_numbers: dict[str, int] = {}


def operator_number(op: str) -> int | None:
    """The core's number of an operator; None if PyTorch has no operator of that name."""
    if op not in _numbers:  # libraries register more as they are loaded
        _numbers.update((name, i) for i, name in enumerate(_C.operator_names()))
    return _numbers.get(op)


def _operator(op: str) -> torch._ops.OpOverload:
    namespace, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    found = None
    if operator_number(op) is not None:
        packet = getattr(getattr(torch.ops, namespace), name, None)
        found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise CaptureError(f"no operator {_shown(op)} in this PyTorch")
    why = refusal(op)
    if why:
        raise CaptureError(why)
    return found


@cache
def refusal(op: str) -> str:
    """Why a registered operator may not be called for a file; empty where it may."""
    namespace, _, rest = op.partition("::")
    if namespace in _NAMESPACES or op in _TEXTS_OUT:
        return f"{op} does more than compute: no file may ask for it"
    base, _, overload = rest.partition(".")
    schema = torch._C._get_schema(f"{namespace}::{base}", overload)
    texts = [a.name for a in schema.arguments if "str" in str(a.type)]
    if any(_FILES.search(word) for word in (base, *texts)):
        return f"{op} reads or writes files: no file may ask for it"
    return ""


# PyTorch keeps these as numbers, takes any number for one, and looks it up in tables unchecked.
_WORDS = {
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
}


def check_words(function: Callable, args: Iterable[object], kwargs: dict) -> None:
    """CaptureError where an operator would be given a number for a dtype or the like."""
    if not isinstance(function, torch._ops.OpOverload):
        return
    arguments = function._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, args)}
    given.update(kwargs)
    for argument in arguments:
        value = given.get(argument.name)
        kind = _WORDS.get(str(argument.real_type).removeprefix("Optional[").removesuffix("]"))
        if kind is None or value is None or isinstance(value, kind):
            continue
        if not argument.has_default_value() or value != argument.default_value:
            said = f"torch.{kind.__name__}"
            raise CaptureError(f"its {argument.name} is {value!r}, which is not a {said}")


# ---- Python functions --------------------------------------------------------------
def _is_arithmetic(own: str) -> bool:
    """Of a method's name."""
    if own in _OPERATORS or own in _PROPERTIES:
        return True
    return "__" not in own and own not in _NO_ARITHMETIC


@cache
def _functions() -> dict[str, Callable]:
    """PyTorch's functions and methods by name."""
    return dict((*_bindings(), *_initialisers(), *_overridable()))


def _overridable() -> Iterator[tuple[str, Callable]]:
    import torch.overrides as overrides

    for group in overrides.get_overridable_functions().values():
        for function in group:
            name = overrides.resolve_name(function)
            if not name or isinstance(function, type) or not callable(function):
                continue
            own = name.removeprefix("torch.Tensor.")
            if _is_arithmetic(own if own != name else name.rpartition(".")[2]):
                yield name, function


def _bindings() -> Iterator[tuple[str, Callable]]:
    """torch.add, torch._foreach_add_, torch._C._nn.gelu: one per operator, and factories."""
    table = torch._C._VariableFunctions
    for own in {*dir(table), *_FACTORIES}:
        function = getattr(torch, own, None)
        kind = (types.BuiltinFunctionType, types.FunctionType)
        if "__" not in own and not _FILES.search(own) and isinstance(function, kind):
            yield f"torch.{own}", function
    for package in _BINDINGS:
        held = getattr(torch._C, package.rpartition(".")[2])
        for own in dir(held):
            if "__" not in own and isinstance(getattr(held, own), types.BuiltinFunctionType):
                yield f"{package}.{own}", getattr(held, own)


def _initialisers() -> Iterator[tuple[str, Callable]]:
    for own, function in vars(torch.nn.init).items():
        is_its_own = getattr(function, "__module__", None) == "torch.nn.init"
        if not own.startswith("_") and is_its_own and isinstance(function, types.FunctionType):
            yield f"torch.nn.init.{own}", function


def _allowed(name: str, package: str) -> Callable:
    """A function of a package the user allowed, not one that it merely imports."""
    try:
        found = get_function_from_string(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CaptureError(f"{_shown(name)} cannot be called: {error}") from None
    home = getattr(found, "__module__", None)
    is_its_own = isinstance(home, str) and home.split(".")[0] == package
    if "__" in name or not callable(found) or not is_its_own:
        raise CaptureError(f"{_shown(name)} is no function of package {package}")
    return found


def _shown(name: str) -> str:
    """For a sentence: a name out of a file may hold anything."""
    return "".join(c if c.isprintable() else "?" for c in name)[:120]
