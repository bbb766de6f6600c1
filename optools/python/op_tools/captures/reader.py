# SPDX-License-Identifier: Apache-2.0
"""The record log and packs of a capture; what it gives is in `op_tools.captures`."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from op_tools.captures import version1
from op_tools.captures.values import (
    REQUIRES_GRAD,
    STAND_INS,
    CaptureError,
    Loader,
    Opaque,
    TensorRef,
    brief,
    device_named,
    leaves,
)
from op_tools.core import _C, first_line
from op_tools.core.capture_format import FORMAT, LOG, READABLE, VERSION
from op_tools.core.files import is_plain
from op_tools.core.patterns import OperatorPattern
from op_tools.core.printing import printable

PHASES = ("forward", "backward", "optimizer")
MAX_DIMS = 64  # PyTorch's own limit
# Frame kinds and extension codes: docs/capture-format.md.
_HEAD, _DEFINITION, _BLOB, _RECORD, _LATE, _END = range(1, 7)
_TENSOR, _DTYPE, _DEVICE, _LAYOUT, _MEMORY_FORMAT = range(1, 6)
_COMPLEX, _GENERATOR, _OBJECT, _TUPLE, _UNDEFINED = range(6, 11)
# What a damaged or foreign payload can make its reader raise.
_DAMAGE = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
    RuntimeError,
)  # fmt: skip


@dataclass
class Record:
    """One call."""

    number: int  # calls are numbered as they begin
    op: str  # "aten::add.Tensor", or a Python API of an imported capture
    schema: str
    phase: str
    step: int
    thread: int
    sequence: int  # autograd's number, -1 for none; with sequence_thread it ties both directions
    sequence_thread: int
    forward: int  # number of the forward call, 0 where unknown
    api: str
    api_call: int
    module: str
    site: str  # "file:line function"
    start_ns: int
    end_ns: int
    raised: str | None
    args: list
    kwargs: dict
    outputs: list
    after: dict[int, object]
    grad_inputs: list | None
    grad_outputs: list | None
    of_arguments: bool  # grad_inputs: one per tensor argument, not those of an autograd node
    rng: TensorRef | None  # the generator's state before a random operator
    capture: Capture = field(repr=False, compare=False)  # it is capture[place]
    place: int = field(repr=False, compare=False)

    def tensors(self) -> Iterator[tuple[str, TensorRef]]:
        """("args[0]", ref), ... of everything."""
        parts = [("args", self.args), ("kwargs", self.kwargs), ("outputs", self.outputs)]
        parts += [("after", self.after), ("grad_inputs", self.grad_inputs)]
        parts += [("grad_outputs", self.grad_outputs)]
        for name, value in parts:
            yield from leaves(value, name)

    @property
    def on_cpu(self) -> bool:
        return all(ref.device == "cpu" for _, ref in self.tensors())

    @property
    def has_contents(self) -> bool:
        """Are its tensors in the capture, beyond their hashes?"""
        return all(ref.capture.has_contents for _, ref in self.tensors() if ref.hash)

    def signature(self) -> str:
        """What it was called with, and what came of it, in a few characters."""
        given = [brief(value) for value in self.args]
        given += [f"{printable(str(key))}={brief(value)}" for key, value in self.kwargs.items()]
        made = "raised" if self.raised else ", ".join(brief(value) for value in self.outputs)
        return f"({', '.join(given)}) -> {made}"

    def load(
        self, device: str | torch.device = "cpu", named: str | torch.device | None = None
    ) -> tuple[list, dict]:
        """Arguments and keywords to call the operator with again, tensors read. Devices among the
        arguments become `named`, or where it is not given `device`."""
        loader = Loader(device, STAND_INS, grads=self.grad_outputs is not None, named=named)
        args, kwargs = loader.load(self.args), loader.load(self.kwargs)
        return _as_call(self.schema, args, kwargs)

    def load_arguments(self, device: str | torch.device = "cpu") -> list:
        """The arguments in the schema's order, tensors read."""
        return Loader(device, STAND_INS).load(self.args)

    def load_outputs(self, device: str | torch.device = "cpu") -> list:
        return Loader(device).load(self.outputs)


class Capture:
    """A capture folder."""

    def __init__(self, path: str) -> None:
        self.path = os.fspath(path)
        self.log = os.path.join(self.path, LOG)
        if not os.path.isfile(self.log):
            raise CaptureError(f"{self.path} is no capture: it has no {LOG}")
        if not is_plain(self.log):
            raise CaptureError(f"{self.log} is a link: a capture's own files are plain ones")
        try:
            self._log = _C.CaptureLog(self.log)
        except (RuntimeError, OSError) as error:
            raise CaptureError(f"{self.log} cannot be read: {error}") from None
        self.problems: list[str] = []
        self.head: dict[str, str] = next(iter(self._frames(_HEAD, _head)), {})
        self._check()
        self.end: dict | None = next(iter(self._frames(_END, _end)), None)
        for offset, what in self._log.problems:
            self.problems.append(f"{self.log}: byte {offset}: {what}")
        self._names: dict[tuple[str, int], tuple[str, str]] = dict(
            self._frames(_DEFINITION, _definition)
        )
        self._blobs: dict[str, tuple[int, int, int]] = dict(self._frames(_BLOB, _blob))
        self._late: dict[int, dict] = dict(self._frames(_LATE, _late))

    def _check(self) -> None:
        if self.head.get("format") != FORMAT:
            if self._log.bytes and len(self._log):
                self.problems.append(f"{self.log}: its first frame is missing")
            else:
                raise CaptureError(f"{self.log} is no record log of op_tools")
        elif self.version not in READABLE:
            raise CaptureError(
                f"{self.log} has version {self.version} of the format; this op_tools "
                f"reads versions {' and '.join(READABLE)}"
            )

    def _frames(self, kind: int, read: Callable[[object], object]) -> list:
        good = []
        for value in self._log.all(kind):
            try:
                good.append(read(value))
            except _DAMAGE as error:
                self.problems.append(f"{self.log}: a frame of kind {kind} cannot be read: {error}")
        return good

    @property
    def version(self) -> str:
        """Of the format; a damaged log is read as the newest."""
        return self.head.get("version", VERSION)

    @property
    def finished(self) -> bool:
        """Was the capture stopped, rather than its process ended?"""
        return self.end is not None

    @property
    def has_contents(self) -> bool:
        """Of tensors, beyond their hashes?"""
        return self.head.get("content", "full") == "full"

    def __len__(self) -> int:
        return len(self._log)

    def __getitem__(self, index: int) -> Record:
        """By place in the log, which is by the end of calls; iteration is by their beginning."""
        index = range(len(self))[index]
        try:
            return self._record(self._log.record(index), index)
        except _DAMAGE as error:
            raise CaptureError(f"{self.log}: record {index} cannot be read: {error!r}") from None

    def __iter__(self) -> Iterator[Record]:
        for index in self._log.order():
            try:
                yield self[index]
            except CaptureError as error:
                if str(error) not in self.problems:
                    self.problems.append(str(error))

    def select(
        self, op: str | None = None, phase: str | None = None, step: int | None = None
    ) -> Iterator[Record]:
        """Records whose operator (with or without its overload, a regular expression), phase and
        step are these."""
        pattern = OperatorPattern(op)
        return (
            record
            for record in self
            if pattern.matches(record.op)
            and phase in (None, record.phase)
            and step in (None, record.step)
        )

    def blob(self, name: str, nbytes: int) -> torch.Tensor:
        """Bytes by their hash, as a uint8 tensor."""
        if name not in self._blobs:
            raise CaptureError(f"{self.path}: no blob {name} (content {self.head.get('content')})")
        pack, offset, size = self._blobs[name]
        path = self._pack(pack)
        there = max(os.path.getsize(path) - offset, 0)
        if there < size or size != nbytes:
            raise CaptureError(
                f"{path}: {nbytes} bytes at {offset} expected for blob {name}, "
                f"{min(size, there)} are there"
            )
        raw = bytearray(size)
        with builtins.open(path, "rb") as file:
            file.seek(offset)
            file.readinto(raw)
        if (version1 if self.version == "1" else _C).hash_bytes(raw) != name:
            raise CaptureError(f"{path}: the bytes at {offset} are not those of blob {name}")
        return (
            torch.frombuffer(raw, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
        )

    def _pack(self, number: int) -> str:
        stem = os.path.join(self.path, f"pack-{number:05d}")
        for end in (".safetensors", ".part"):  # .part: its process ended before closing it
            if is_plain(stem + end):
                return stem + end
            if os.path.lexists(stem + end):
                raise CaptureError(f"{stem + end} is a link: a capture's own files are plain ones")
        raise CaptureError(f"{stem}.safetensors is missing")

    def _record(self, raw: dict, place: int) -> Record:
        def name(table: str) -> tuple[str, str]:
            number = _whole(raw, table)
            if not number and table != "op":
                return "", ""
            return self._names.get((table, number), (f"{table} {number}", ""))

        number = _whole(raw, "number", None)

        def values(key: str, kind: type, default: object) -> object:
            held = raw.get(key, default)
            return None if held is None else self._value(_of(held, kind, key), number)

        op, schema = name("op")
        after = {**_of(raw.get("after", {}), dict, "after"), **self._late.get(number, {})}
        return Record(
            number=number, op=op, schema=schema, phase=PHASES[_whole(raw, "phase")],
            step=_whole(raw, "step"), thread=_whole(raw, "thread"),
            sequence=_whole(raw, "sequence", -1), sequence_thread=_whole(raw, "sequence_thread"),
            forward=_whole(raw, "forward"), api=name("api")[0], api_call=_whole(raw, "api_call"),
            module=name("module")[0], site=name("site")[0], start_ns=_whole(raw, "start"),
            end_ns=_whole(raw, "end"), raised=_of(raw.get("raised"), (str, type(None)), "raised"),
            args=values("args", list, []), kwargs=values("kwargs", dict, {}),
            outputs=values("out", list, []),
            after={_argument(place, raw): self._value(value, number) for place, value in after.items()},
            grad_inputs=values("grad_inputs", list, None),
            grad_outputs=values("grad_outputs", list, None),
            of_arguments=bool(raw.get("of_arguments")),
            rng=values("rng", tuple, None), capture=self, place=place,
        )  # fmt: skip

    def _value(self, value: object, number: int) -> object:
        if isinstance(value, list):
            return [self._value(item, number) for item in value]
        if isinstance(value, dict):
            return {key: self._value(item, number) for key, item in value.items()}
        if not isinstance(value, tuple):
            return value
        code, held = value
        if code == _TENSOR:
            return self._tensor(held, number)
        if code == _TUPLE:
            return tuple(self._value(item, number) for item in held)
        if code in (_DTYPE, _LAYOUT, _MEMORY_FORMAT):
            found = vars(torch).get(held)
            kinds = (torch.dtype, torch.layout, torch.memory_format)
            return found if isinstance(found, kinds) else Opaque(held)
        if code == _DEVICE:
            return device_named(_of(held, str, "device"))
        if code == _COMPLEX:
            return complex(*held)
        if code == _UNDEFINED:
            return None
        return Opaque(
            f"generator of {held or 'no device'}" if code == _GENERATOR else printable(str(held))
        )

    def _tensor(self, raw: dict, number: int) -> TensorRef:
        flags = _whole(raw, "f", None)
        shape, stride = (tuple(_of(raw.get(key, []), list, key)) for key in "st")
        if len(shape) > MAX_DIMS:
            raise ValueError(f"a tensor of {len(shape)} dimensions")
        if len(shape) != len(stride) or not all(_is_size(n) for n in (*shape, *stride)):
            raise ValueError(f"a tensor of sizes {list(shape)} and strides {list(stride)}")
        return TensorRef(
            capture=self, record=number,
            dtype=_of(vars(torch).get(raw["d"]), torch.dtype, "d"),
            device=printable(_of(raw["v"], str, "v")), shape=shape, stride=stride,
            offset=_whole(raw, "o"), storage=_whole(raw, "a"),
            requires_grad=bool(flags & REQUIRES_GRAD), flags=flags,
            hash=_of(raw["h"], bytes, "h").hex() if "h" in raw else None,
            nbytes=_whole(raw, "n"), layout=printable(_of(raw.get("l", "strided"), str, "l")),
            reason=printable(_of(raw.get("w", ""), str, "w")) or None,
        )  # fmt: skip


# ---- payloads, checked -------------------------------------------------------------
def _of(value: object, kind: type | tuple[type, ...], what: str):
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"its `{what}` is {type(value).__name__}")
    return value


def _whole(raw: dict, key: str, default: int | None = 0) -> int:
    """A whole number; one without a default has to be there."""
    return _of(raw.get(key, default), int, key)


def _argument(place: object, raw: dict) -> int:
    """A place among a record's arguments."""
    if not _is_size(place) or place >= len(raw.get("args", [])):
        raise ValueError(f"it wrote argument {place!r}, which it does not have")
    return place


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _head(raw: object) -> dict[str, str]:
    held = _of(raw, dict, "head")
    return {printable(str(key)): printable(str(value)) for key, value in held.items()}


def _end(raw: object) -> dict:
    held = _of(raw, dict, "end")
    unread = {}
    for reason, count in _of(held.get("unread", {}), dict, "unread").items():
        unread[printable(_of(reason, str, "unread"))] = _of(count, int, "unread")
    why = printable(_of(held.get("why", ""), str, "why"))
    return {**held, "unread": unread, "why": why, "refused": _whole(held, "refused")}


def _definition(raw: object) -> tuple[tuple[str, int], tuple[str, str]]:
    table, number, text, more = _of(raw, list, "definition")
    for value in (table, text, more):
        _of(value, str, "definition")
    return (table, _of(number, int, "definition")), (printable(text), printable(more))


def _blob(raw: object) -> tuple[str, tuple[int, int, int]]:
    name, *place = _of(raw, list, "blob")
    if len(place) != 3 or not all(map(_is_size, place)):
        raise ValueError(f"a blob at {place}")
    return _of(name, bytes, "blob").hex(), tuple(place)


def _late(raw: object) -> tuple[int, dict]:
    held = _of(raw, dict, "late")
    return _whole(held, "number", None), _of(held.get("after"), dict, "after")


def open(path: str) -> Capture:
    """The capture in a folder; a folder with exactly one capture below it will do."""
    if not os.path.isfile(os.path.join(path, LOG)):
        below = find(path)
        if len(below) == 1:
            return Capture(below[0])
        if len(below) > 1:
            raise CaptureError(f"{path} holds {len(below)} captures: name one, such as {below[0]}")
    return Capture(path)


def find(path: str) -> list[str]:
    """Capture folders at or below a path."""
    return sorted(folder for folder, _, files in os.walk(path) if LOG in files)


def arguments_of(schema: str) -> list[torch.Argument]:
    """An operator's arguments as its schema has them."""
    try:
        return torch._C.parse_schema(schema).arguments
    except (RuntimeError, ValueError) as error:  # its own complaint may be no text
        said = first_line(error)
        raise CaptureError(f"{schema[:80]!r} is no schema of an operator: {said}") from None


def _as_call(schema: str, args: list, kwargs: dict) -> tuple[list, dict]:
    """Positional and keyword arguments, as the operator's schema wants them."""
    if not schema:
        return args, kwargs
    positional, named = [], dict(kwargs)
    for argument, value in zip(arguments_of(schema), args):
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named
