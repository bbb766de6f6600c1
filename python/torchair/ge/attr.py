# SPDX-License-Identifier: Apache-2.0
"""Typed attributes of torchair.ge.custom_op."""


class Attr:
    """A value that must be of `kind`; `many`: a list of them."""

    kind: type | tuple = object
    many = 0

    def __init__(self, value):
        self.value = self._checked(value, self.many)

    def _checked(self, value, depth: int):
        if depth:
            if not isinstance(value, (list, tuple)):
                self._refuse(value)
            return [self._checked(v, depth - 1) for v in value]
        if (isinstance(value, bool) and self.kind is not bool) or not isinstance(value, self.kind):
            self._refuse(value)
        return value

    def _refuse(self, value):
        raise TypeError(f"ge.attr.{type(self).__name__}: {value!r} does not fit")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Int(Attr):
    kind = int


class Float(Attr):
    kind = (float, int)


class Bool(Attr):
    kind = bool


class Str(Attr):
    kind = str


class DataType(Attr):
    """A torch.dtype, or the ge.DataType of one."""

    def _checked(self, value, depth: int):
        import torch

        from torchair.ge._ge_graph import DataType, torch_type_of

        if depth:
            return super()._checked(value, depth)
        if not isinstance(value, (torch.dtype, DataType)):
            self._refuse(value)
        return torch_type_of(value)


class ListDataType(DataType):
    many = 1


class ListInt(Int):
    many = 1


class ListFloat(Float):
    many = 1


class ListBool(Bool):
    many = 1


class ListStr(Str):
    many = 1


class ListListInt(Int):
    many = 2


class ListListFloat(Float):
    many = 2
