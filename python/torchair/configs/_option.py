# SPDX-License-Identifier: Apache-2.0
"""Options of TorchAir's configuration tree: what may be assigned, and what reading gives.

`config.a.b = value` checks the value and keeps it inside an option object; reading gives that
object, whose `.value` is text as TorchAir's is: "1" and "0" for booleans, None while unset.
"""

import os
import re

_LARGEST = 2**63 - 1


def _with_code(error: Exception) -> Exception:
    """The same exception with torch_npu's line of codes after its text."""
    from torch_npu.utils._error_code import ErrCode, graph_error

    return type(error)(f"{error}{graph_error(ErrCode.INTERNAL)}")


class Option:
    """One leaf. `check(value)` returns what is kept, or raises."""

    def __init__(self, default=None, check=None, plain: bool = False):
        self.default = default
        self._check = check
        self._plain = plain  # .value as it is instead of text
        self._value = default

    def set(self, value, name: str) -> None:
        self._value = value if self._check is None else self._check(value, name)

    def reset(self) -> None:
        self._value = self.default

    @property
    def raw(self):
        return self._value

    @property
    def value(self):
        if self._value is None or self._plain:
            return self._value
        if isinstance(self._value, bool):
            return "1" if self._value else "0"
        return str(self._value)

    @value.setter
    def value(self, value) -> None:
        self.set(value, "value")

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other) -> bool:
        return self._value == (other._value if isinstance(other, Option) else other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"Option({self._value!r})"


def choice(default, *allowed) -> Option:
    def check(value, name):
        if value not in allowed:
            raise ValueError(
                f"option {name}: {value!r} is not among the allowed values {list(allowed)}"
            )
        return value

    return Option(default, check)


def switch(default: bool | None) -> Option:
    """True or False; 1 and 0 are taken for them."""

    def check(value, name):
        if value not in (True, False):
            raise ValueError(
                f"option {name}: {value!r} is not among the allowed values [True, False]"
            )
        return bool(value)

    return Option(default, check)


def integer(default, low: int, high: int = _LARGEST) -> Option:
    def check(value, name):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"option {name}: expected an int, but got {type(value).__name__}")
        if not low <= value <= high:
            raise ValueError(f"option {name}: {value} is not in the range [{low}, {high}]")
        return value

    return Option(default, check)


def function(default=None) -> Option:
    def check(value, name):
        if value is not None and not callable(value):
            raise ValueError(f"option {name}: expected a callable, but got {type(value).__name__}")
        return value

    return Option(default, check, plain=True)


def of_type(default, *types: type) -> Option:
    def check(value, name):
        if value is not None and not isinstance(value, types):
            expected = " or ".join(kind.__name__ for kind in types)
            raise ValueError(
                f"option {name}: expected {expected} or None, but got {type(value).__name__}"
            )
        return value

    return Option(default, check, plain=True)


def integers(default=None) -> Option:
    def check(value, name):
        if value is None:
            return None
        wrong = not isinstance(value, (list, tuple))
        if wrong or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            raise ValueError(f"option {name}: expected a list or tuple of int, but got {value!r}")
        return list(value)

    return Option(default, check, plain=True)


def path(default=None, kind: str | None = None, suffix: str = "") -> Option:
    """`kind`: "file" or "directory" that has to exist; None: any path, made absolute."""

    def check(value, name):
        if not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"option {name}: expected a path, but got {type(value).__name__}")
        text = os.fspath(value)
        exists = {"file": os.path.isfile, "directory": os.path.isdir}.get(kind)
        if exists is not None and not exists(text):
            raise FileNotFoundError(f"option {name}: no {kind} at {text!r}")
        if not text.endswith(suffix):
            raise ValueError(f"option {name}: {text!r} does not end with {suffix!r}")
        return os.path.abspath(text) if kind is None else os.path.realpath(text)

    return Option(default, check)


def text(default=None, pattern: str | None = None, means: str = "") -> Option:
    def check(value, name):
        if pattern is not None and not (isinstance(value, str) and re.fullmatch(pattern, value)):
            raise ValueError(f"option {name}: {value!r} is not {means}")
        return value

    return Option(default, check)


class Group:
    """Options and groups of options under one name. Other names cannot be set."""

    def __init__(self, label: str, **members):
        self.__dict__["_label"] = label
        self.__dict__["_members"] = members

    def __getattr__(self, name: str):
        members = self.__dict__.get("_members", {})
        if name in members:
            return members[name]
        raise AttributeError(self._unknown(name))

    def __setattr__(self, name: str, value) -> None:
        member = self._members.get(name)
        try:
            if member is None:
                raise ValueError(self._unknown(name))
            if isinstance(member, Group):
                raise ValueError(f"{self._label}.{name} is a group of options: {member._names()}")
            member.set(value, name)
        except (ValueError, FileNotFoundError) as error:
            raise _with_code(error) from None

    def __dir__(self):
        return [*super().__dir__(), *self._members]

    def _names(self) -> list[str]:
        return list(self._members)

    def _unknown(self, name: str) -> str:
        return f"{self._label} has no option {name!r}, all options are: {self._names()}"

    def leaves(self, before: str = ""):
        """(dotted name, option) of every leaf below."""
        for name, member in self._members.items():
            if isinstance(member, Group):
                yield from member.leaves(f"{before}{name}.")
            else:
                yield f"{before}{name}", member

    def changed(self):
        """The leaves that do not have their default."""
        return ((name, leaf) for name, leaf in self.leaves() if leaf.raw != leaf.default)

    def __eq__(self, other) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return [(n, o.raw) for n, o in self.leaves()] == [(n, o.raw) for n, o in other.leaves()]

    __hash__ = None

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        import copy

        for key, value in self.__dict__.items():
            made.__dict__[key] = copy.deepcopy(value, memo)
        return made

    def as_dict(self) -> tuple[dict, dict]:
        """The options that are set, as text by dotted name: options of one graph, options of the process."""
        local, process = {}, {}
        for name, leaf in self.leaves():
            if leaf.value is not None and not callable(leaf.raw):
                whole = name.startswith(("ge_config.export_compile_stat", "aoe_config."))
                (process if whole else local)[name] = leaf.value
        return local, process
