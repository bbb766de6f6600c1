# SPDX-License-Identifier: Apache-2.0
"""Objects of a program's own classes among arguments and results: spread into dicts, and made again.

torch.export takes containers that it knows. A dict {"object <class>": fields} stands for an object,
so that the structure of a call has a form in a file.
"""

import dataclasses
import enum
import sys
import types

import torch
from torch.utils import _pytree as pytree

_TAG = "object "
_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.device)
_BY_NAME = {str(v): v for v in vars(torch).values() if isinstance(v, _NAMED)}


def is_object(value) -> bool:
    """An object with fields, of a class that neither Python nor PyTorch brings."""
    kind = type(value)
    if isinstance(value, (*_NAMED, enum.Enum)):
        return True
    if kind in pytree.SUPPORTED_NODES or isinstance(value, (type, torch.Tensor, torch.nn.Module)):
        return False
    if isinstance(value, (types.FunctionType, types.MethodType, types.ModuleType)):
        return False
    if kind.__module__.partition(".")[0] in ("builtins", "enum", "torch", "numpy"):
        return False
    return hasattr(value, "_fields") or hasattr(value, "__dict__") or dataclasses.is_dataclass(kind)


def spread(value, classes: dict[str, type]):
    """`value` with a dict in the place of each object. `classes` gets their classes by name."""

    def one(held):
        if not is_object(held):
            return held
        if isinstance(held, _NAMED):
            return {_TAG + "torch": str(held)}
        kind = type(held)
        name = f"{kind.__module__}:{kind.__qualname__}"
        classes[name] = kind
        return {_TAG + name: spread(_fields(held), classes)}

    return pytree.tree_map(one, value, is_leaf=is_object)


def _fields(value) -> dict:
    if isinstance(value, enum.Enum):
        return {"name": value.name}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    names = [s for k in type(value).__mro__ for s in _slots(k) if hasattr(value, s)]
    found = {name: getattr(value, name) for name in names if name != "__weakref__"}
    found.update(getattr(value, "__dict__", {}))
    if isinstance(value, (dict, list)):
        found["()"] = (dict if isinstance(value, dict) else list)(value)
    return found


def _slots(kind: type) -> tuple:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_spread(value) -> bool:
    return type(value) is dict and len(value) == 1 and str(next(iter(value))).startswith(_TAG)


def gathered(value, classes: dict[str, type]):
    """The opposite of `spread`. No code of the classes runs."""

    def one(held):
        if not _is_spread(held):
            return held
        ((name, fields),) = held.items()
        if name == _TAG + "torch":
            return _BY_NAME.get(fields) or torch.device(fields)
        return _made(_class(name.removeprefix(_TAG), classes), gathered(fields, classes))

    return pytree.tree_map(one, value, is_leaf=_is_spread)


def _class(name: str, classes: dict[str, type]) -> type:
    """A class that this process has spread, or one of these kinds that it has imported."""
    if name in classes:
        return classes[name]
    module, _, path = name.partition(":")
    found = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if isinstance(found, (type, types.ModuleType)) else None
    if isinstance(found, type) and (
        dataclasses.is_dataclass(found) or hasattr(found, "_fields") or issubclass(found, enum.Enum)
    ):
        return found
    raise KeyError(f"no dataclass, named tuple or enum {name} is imported here")


def _made(kind: type, fields: dict):
    if issubclass(kind, enum.Enum):
        return kind[fields["name"]]
    if issubclass(kind, tuple):
        return tuple.__new__(kind, fields.values())
    base = next((b for b in (dict, list) if issubclass(kind, b)), object)
    made = base.__new__(kind)
    if base is not object:
        held = fields.pop("()")
        made.update(held) if base is dict else made.extend(held)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def same(one, other) -> bool:
    """Whether both have the same structure, and as leaves the same objects or equal plain values."""
    (leaves, spec), (others, other_spec) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return spec == other_spec and all(
        a is b or (type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b)
        for a, b in zip(leaves, others)
    )
