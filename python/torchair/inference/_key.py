# SPDX-License-Identifier: Apache-2.0
"""The facts that a trace depends on, as text: a module's values, its code and the functions that it calls.

Parameters, buffers and tensors that are attributes are read at every call, so only their places
count. Whatever has no text that is the same in the next process raises Unkeyable, with its path.
"""

import dataclasses
import enum
import functools
import hashlib
import logging
import re
import sys
import threading
import types
import weakref
from collections import deque

import torch

_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(...), range, torch.dtype, torch.device,
    torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip
_NO_INFLUENCE = (
    logging.Logger, threading.Condition, threading.local, torch.Generator, torch.Stream, torch.Event,
    type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
# Of modules: what forward does not see.
_NOT_FORWARD = (
    "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_OWN = frozenset([
    *sys.stdlib_module_names, "torch", "torch_npu", "torchair", "npugraph_ex", "numpy", "functorch",
])  # fmt: skip
_CODE = (types.FunctionType, property, staticmethod, classmethod, functools.cached_property)
_BUILTINS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip
_MOST, _ABSENT = 200_000, object()


class Unkeyable(ValueError):
    """A value that could be another one in the next process without its text saying so."""


@dataclasses.dataclass
class Held:
    """The way to a tensor in a container, an object or a global. Every call goes it again."""

    steps: tuple

    def now(self, owner: torch.nn.Module):
        """The current value. Raises LookupError, AttributeError or TypeError if the path is gone."""
        value = owner
        for kind, key in self.steps:
            if kind == "globals":
                names, name = key
                value = names[name]
            elif kind == "object":
                value = key
            elif kind == "item":
                value = value[key]
            elif key in getattr(value, "__dict__", {}):
                value = vars(value)[key]
            else:
                value = getattr(value, key)  # of a class with slots
        return value


def digest(owner: torch.nn.Module, function) -> str:
    return read(owner, function)[0]


def read(owner: torch.nn.Module, function, decompositions=()) -> tuple[str, list[Held]]:
    """A digest of all that the trace of `function`, a method of `owner`, may depend on, and the tensors that
    the method may reach; another process with the same digest has them in the same order."""
    writer = _Writer([*owner.parameters(), *owner.buffers()])
    try:
        writer.write(owner, _Path(type(owner).__name__, ()))
        writer.write(getattr(function, "__func__", function), function.__name__)
        for operator in sorted(decompositions, key=str):
            writer.write((str(operator), decompositions[operator]), f"decomposition of {operator}")
    except RecursionError:
        raise Unkeyable(f"{type(owner).__name__} holds values too deep in one another") from None
    return writer.hash.hexdigest(), writer.held


def state() -> tuple:
    """The global state that a trace depends on: another state is another trace."""
    kinds = [k for k in ("cpu", "npu") if torch.is_autocast_enabled(k)]
    autocast = tuple((k, str(torch.get_autocast_dtype(k))) for k in kinds)
    return autocast, str(torch.get_default_dtype()), str(torch.get_default_device())


class _Path(str):
    """A path as errors show it, with the steps from the module or a global; None: no such steps."""

    steps: tuple | None

    def __new__(cls, text: str, steps: tuple | None):
        made = super().__new__(cls, text[:200])
        made.steps = steps
        return made


def _further(path: str, text: str, kind: str, key) -> _Path:
    steps = getattr(path, "steps", None)
    return _Path(path + text, None if steps is None else (*steps, (kind, key)))


class _Writer:
    def __init__(self, read_at_calls: list):
        self._read_at_calls = {id(tensor) for tensor in read_at_calls}
        self.hash = hashlib.sha256()
        self._seen: dict[int, tuple[int, object]] = {}
        self._classes: set[type] = set()
        self._storages: dict[int, int] = {}
        self.held: list[Held] = []

    def _say(self, *parts) -> None:
        self.hash.update(("\x1f".join(map(str, parts)) + "\x1e").encode("utf-8", "surrogatepass"))

    def write(self, value, path: str) -> None:
        if type(value) in _PLAIN:
            # repr: -0.0 and 0.0, True and 1 differ.
            return self._say(type(value).__name__, repr(value))
        if isinstance(value, (tuple, frozenset, slice, types.CodeType)):
            # Equal ones are one object in one process and two in the next.
            return self._write_new(value, path)
        before = self._seen.get(id(value))
        if before is not None:
            return self._say("again", before[0])
        if len(self._seen) > _MOST:
            raise Unkeyable(f"{path}: more than {_MOST} values")
        # Kept: a number is given once while this is written.
        self._seen[id(value)] = (len(self._seen), value)
        return self._write_new(value, path)

    def _write_new(self, value, path: str) -> None:
        from torchair.inference._cache import CachedFunction

        if isinstance(value, CachedFunction):  # of this module, or of one it calls
            return self.write(value.__wrapped__, str(path))
        if isinstance(value, torch.nn.Module):
            return self._module(value, path)
        if isinstance(value, torch.Tensor):
            is_place = id(value) in self._read_at_calls  # an LSTM keeps lists of its parameters
            return self._place(value) if is_place else self._constant(value, path)
        if isinstance(value, type):
            return self._class(value, path)
        if isinstance(value, types.ModuleType):
            return self._say("module", value.__name__)
        if isinstance(value, _NO_INFLUENCE):
            return self._say(type(value).__name__)
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, types.CodeType):
            return self._code(value, path)
        return self._container(value, path)

    # ---- containers and objects ------------------------------------------------
    def _container(self, value, path: str) -> None:
        kind = type(value)
        if isinstance(value, enum.Enum) or hasattr(kind, "__members__"):  # pybind11's have it too
            return self._say("enum", kind.__module__, kind.__qualname__, value.name)
        if isinstance(value, re.Pattern) or (
            kind.__module__ == "numpy" and not hasattr(value, "dtype")
        ):
            return self._say(kind.__qualname__, repr(value))
        if kind.__module__ == "numpy" and value.dtype.kind != "O":
            self._say("numpy", value.dtype.str, value.shape)
            return self.hash.update(value.tobytes())
        if torch.distributed.is_available() and isinstance(value, torch.distributed.ProcessGroup):
            return self._say("group", value.group_name, value.rank(), value.size())
        if isinstance(value, (dict, types.MappingProxyType)):
            self._say("dict", kind.__qualname__, len(value))
            for key, held in value.items():
                self.write(key, f"a key of {path}")
                self.write(held, _further(path, f"[{key!r}]", "item", key))
        elif isinstance(value, (set, frozenset)):
            self._set(value, path)
        elif isinstance(value, (tuple, list, deque)):
            self._say("sequence", kind.__qualname__, len(value))
            for i, held in enumerate(value):
                self.write(held, _further(path, f"[{i}]", "item", i))
        elif isinstance(value, slice):
            self.write((value.start, value.stop, value.step), str(path))
        elif isinstance(value, functools.partial):
            self.write((value.func, value.args, value.keywords), f"{path} (partial)")
        elif isinstance(value, types.MethodType):
            self.write((value.__func__, value.__self__), str(path))
        elif isinstance(value, _CODE):
            parts = ("fget", "fset", "__func__", "func")
            self.write([getattr(value, part, None) for part in parts], str(path))
        elif isinstance(value, weakref.ref):
            self.write(value(), str(path))
        elif isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return self._say("operator", value)
        elif kind is object:  # holds nothing: code compares its identity
            return self._say("object")
        elif isinstance(value, _BUILTINS):
            return self._builtin(value, path)
        elif kind.__module__ in ("typing", "types") and not hasattr(value, "__dict__"):
            return self._say(kind.__qualname__, repr(value))
        elif isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
            return self.write(value.__wrapped__, str(path))  # functools.cache and the like
        else:
            return self._object(value, path)
        # Subclasses of containers hold more.
        return self.write(getattr(value, "__dict__", None) or None, str(path))

    def _set(self, value, path: str) -> None:
        if not all(type(held) in _PLAIN for held in value):
            raise Unkeyable(f"{path} is a set, whose order may change")
        self._say("set", *sorted(map(repr, value)))

    def _builtin(self, value, path: str) -> None:
        owner = getattr(value, "__self__", None)
        self._say("builtin", getattr(value, "__module__", ""), value.__qualname__)
        if owner is not None and not isinstance(owner, (type, types.ModuleType)):
            self.write(owner, path)

    def _object(self, value, path: str) -> None:
        kind = type(value)
        slots = [s for k in kind.__mro__ for s in _names(k.__dict__.get("__slots__", ()))]
        if not (hasattr(value, "__dict__") or slots or dataclasses.is_dataclass(value)):
            raise Unkeyable(f"{path} is a {kind.__module__}.{kind.__qualname__}")
        if isinstance(value, types.GeneratorType) or _is_compiled(kind):
            raise Unkeyable(f"{path} is a {kind.__module__}.{kind.__qualname__}")
        self._class(kind, path)
        held = dict(getattr(value, "__dict__", {}))
        held.update((s, getattr(value, s)) for s in slots if hasattr(value, s))
        held.pop("__weakref__", None)
        for name, part in held.items():
            self._say(name)
            self.write(part, _further(path, f".{name}", "attribute", name))

    # ---- modules and tensors ----------------------------------------------------
    def _module(self, module: torch.nn.Module, path: str) -> None:
        self._class(type(module), path)
        for name, value in vars(module).items():
            if name in _NOT_FORWARD:
                continue
            self._say(name)
            if "_hooks" in name and isinstance(value, dict):
                # Their keys count the hooks of the process.
                self.write(list(value.values()), f"{path}.{name}")
                continue
            if name in ("_parameters", "_buffers"):
                for key, tensor in value.items():
                    self._say(key)
                    self._place(tensor)
                    if tensor is not None:  # a module in a plain list is not the owner's
                        members = _further(path, f".{name}", "attribute", name)
                        self._hold(tensor, _further(members, f"[{key!r}]", "item", key))
            elif isinstance(value, torch.Tensor):
                self._place(value)
                self._hold(value, _further(path, f".{name}", "attribute", name))
            else:
                self.write(value, _further(path, f".{name}", "attribute", name))

    def _place(self, tensor) -> None:
        """Of a tensor that is read at every call: its class, and which others it shares memory with."""
        if tensor is None:
            return self._say("no tensor")
        try:
            storage = tensor.untyped_storage()._cdata
        except (RuntimeError, NotImplementedError):  # sparse, for instance: no storage
            storage = id(tensor)
        shared = self._storages.setdefault(storage, len(self._storages))
        return self._say("tensor", type(tensor).__qualname__, shared)

    def _hold(self, tensor: torch.Tensor, path: str) -> None:
        """Calls read it where the path leads. Without steps (of closures, defaults, partials) it is
        this object, which writes in place change."""
        steps = getattr(path, "steps", None)
        self.held.append(Held((("object", tensor),) if steps is None else steps))

    def _constant(self, tensor: torch.Tensor, path: str) -> None:
        """Of a tensor that is no attribute of a module."""
        self._hold(tensor, path)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            raise Unkeyable(f"{path} is a {type(tensor).__qualname__} of layout {tensor.layout}")
        self._say("constant", tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride())
        if tensor.device.type == "meta":
            return
        try:
            content = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
            if content.numel():
                content = torch.view_as_real(content) if content.is_complex() else content
                self.hash.update(content.view(-1).view(torch.uint8).numpy())
        except (RuntimeError, TypeError) as error:
            raise Unkeyable(f"{path} is a tensor without bytes ({error})") from None

    # ---- code ---------------------------------------------------------------------
    def _class(self, kind: type, path: str) -> None:
        self._say("instance of", kind.__module__, kind.__qualname__, _version(kind.__module__))
        for base in kind.__mro__:
            if base in self._classes or _is_library(base.__module__):
                continue
            self._classes.add(base)
            for name, value in vars(base).items():
                is_data = type(value) in (*_PLAIN, tuple, list, dict) and not name.startswith("__")
                if is_data or isinstance(value, _CODE):
                    self._say(name)
                    self._code_part(value, f"{base.__qualname__}.{name}")

    def _function(self, function, path: str) -> None:
        self._say("function", function.__module__, function.__qualname__)
        self.write((function.__defaults__, function.__kwdefaults__), f"defaults of {path}")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self._say(name)
            try:
                self.write(cell.cell_contents, f"{name}, which {path} closes over,")
            except ValueError as error:
                if isinstance(error, Unkeyable):
                    raise
                self._say("empty")
        if _is_library(function.__module__):
            return self._say(_version(function.__module__))
        self._code(function.__code__, path)
        names = _global_names(function.__code__)
        for name in names:
            value = function.__globals__.get(name, _ABSENT)
            if isinstance(value, types.ModuleType) and not _is_library(value.__name__):
                for own in names:  # config.SCALE
                    self._global(f"{name}.{own}", vars(value), own)
            else:
                self._global(name, function.__globals__, name)

    def _global(self, told: str, names: dict, name: str) -> None:
        """Of a name that a function reads."""
        value = names.get(name, _ABSENT)
        if value is _ABSENT:
            return
        self._say(told)
        if isinstance(value, (types.ModuleType, torch.nn.Module)):
            return self._say(type(value).__qualname__)
        if isinstance(value, type) and _is_library(value.__module__):
            return self._say(value.__qualname__)
        path = _Path(f"the global {told}", (("globals", (names, name)),))
        return self._code_part(value, path)

    def _code_part(self, value, path: str) -> None:
        """Of what code refers to, a library's counter or handle is known by its type; values that
        modules hold are not."""
        try:
            self.write(value, path)
        except Unkeyable:
            self._say(type(value).__qualname__)

    def _code(self, code: types.CodeType, path: str) -> None:
        self._say("code", code.co_code.hex(), code.co_names, code.co_varnames, code.co_flags)
        for constant in code.co_consts:
            if isinstance(constant, frozenset):
                self._set(constant, path)
            else:
                self.write(constant, path)


def _names(slots) -> tuple:
    return (slots,) if isinstance(slots, str) else tuple(slots)


@functools.cache
def _is_library(module: str | None) -> bool:
    """Installed code is known by its names and its package's version."""
    package = str(module).partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package in _OWN or "site-packages" in file or "dist-packages" in file


def _version(module: str | None) -> str:
    package = sys.modules.get(str(module).partition(".")[0])
    return str(getattr(package, "__version__", ""))


def _is_compiled(kind: type) -> bool:
    """Its instances hold what Python does not see."""
    return not kind.__flags__ & (1 << 9) and kind.__module__ != "types"  # Py_TPFLAGS_HEAPTYPE


def _global_names(code: types.CodeType) -> list[str]:
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _global_names(constant)
    return sorted(set(found))
