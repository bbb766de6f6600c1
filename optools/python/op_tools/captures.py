# SPDX-License-Identifier: Apache-2.0
"""Reads captures that OpCapture (or `op-tools import`) wrote.

    capture = captures.open(folder)          # records.oplog and pack-*.safetensors
    for record in capture:                   # in the order calls began
        record.op, record.phase, record.step, record.module, record.site
        args, kwargs = record.load()         # tensors in memory, on the cpu
        args, kwargs = record.load("npu")    # ... or on a device
        results = record.load_outputs()

`captures.find(path)` lists the capture folders at or below a path. What cannot be read is said in
`capture.problems`, and the rest is read. `record.args`, `record.kwargs`, `record.outputs`,
`record.after` (what an argument held afterwards, by position), `record.grad_inputs` and
`record.grad_outputs` (of imported captures) hold plain Python values with a `TensorRef` for each
tensor; `ref.load()` reads its contents. `resolve(record.op)` is the function to call again.

No file is ever unpickled, and `resolve` knows PyTorch's operators and functions only: reading and
replaying a capture runs no code out of it.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from op_tools.core import _C

LOG = "records.oplog"
FORMAT, VERSION = "op_tools capture", "1"
PHASES = ("forward", "backward", "optimizer")
# Frame kinds and extension codes: docs/capture-format.md.
_HEAD, _DEFINITION, _BLOB, _RECORD, _LATE, _END = range(1, 7)
_TENSOR, _DTYPE, _DEVICE, _LAYOUT, _MEMORY_FORMAT = range(1, 6)
_COMPLEX, _GENERATOR, _OBJECT, _TUPLE, _UNDEFINED = range(6, 11)
_REQUIRES_GRAD, _CONJUGATE, _NEGATIVE, _WRAPPED, _PACKED = 1, 2, 4, 8, 16

# Arguments without contents that no operator reads: memory of that shape will do.
STAND_INS = ("an out argument", "a view only")


class CaptureError(RuntimeError):
    """A capture, or a part of it, cannot be read; the text says what and where."""


@dataclass(frozen=True)
class Opaque:
    """A value that captures name but do not hold: a process group, a generator."""

    kind: str

    def __repr__(self) -> str:
        return f"<{self.kind}>"


@dataclass
class TensorRef:
    """A tensor as captured; load() reads its contents."""

    capture: Capture = field(repr=False, compare=False)
    dtype: torch.dtype
    device: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: int  # address of the storage: equal numbers in a record share memory
    requires_grad: bool
    flags: int
    hash: str | None  # of the contents; None where there are none
    nbytes: int  # of the contents as stored
    layout: str
    reason: str | None  # why there are no contents

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def describe(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        if self.layout != "strided":
            return f"{name}({self.layout})"
        return f"{name}{list(self.shape)}".replace(" ", "")

    def load(self, device: str | torch.device = "cpu") -> torch.Tensor:
        """The tensor, with its dtype, strides and bits. Raises CaptureError without contents."""
        if self.numel == 0 and self.reason is None:
            tensor = torch.empty_strided(self.shape, self.stride, dtype=self.dtype)
        elif self.hash is None:
            raise CaptureError(f"{self.describe()} was captured without contents: {self.reason}")
        else:
            tensor = self._shaped(self.capture.blob(self.hash, self.nbytes))
        tensor = tensor if torch.device(device).type == "cpu" else _to(tensor, device)
        if self.flags & _CONJUGATE:
            tensor = tensor.conj()
        if self.flags & _NEGATIVE:
            tensor = torch._neg_view(tensor)
        return tensor

    def _shaped(self, raw: torch.Tensor) -> torch.Tensor:
        flat = raw.view(self.dtype)
        if not self.flags & _PACKED:
            return flat.as_strided(self.shape, self.stride)
        order = sorted(range(len(self.shape)), key=lambda d: (-self.stride[d], d))
        dense = flat.view([self.shape[d] if self.stride[d] else 1 for d in order])
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride))
        if span > max(64 * self.numel, 1 << 20):  # mostly holes: strides are not worth it
            back = [order.index(d) for d in range(len(order))]
            return dense.permute(back).expand(self.shape)
        whole = torch.zeros(span, dtype=self.dtype)
        kept = [self.shape[d] if self.stride[d] else 1 for d in order]
        whole.as_strided(kept, [self.stride[d] for d in order]).copy_(dense)
        return whole.as_strided(self.shape, self.stride)


def _to(tensor: torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """A copy elsewhere with the same strides, also where `to` would make it contiguous."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    if tensor.numel() == 0 or tensor.storage_offset() or span > tensor.untyped_storage().nbytes():
        return tensor.to(device)
    flat = tensor.as_strided((span,), (1,)).to(device)
    return flat.as_strided(tensor.shape, tensor.stride())


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

    def tensors(self) -> Iterator[tuple[str, TensorRef]]:
        """("args[0]", ref), ... of everything."""
        parts = [("args", self.args), ("kwargs", self.kwargs), ("outputs", self.outputs)]
        parts += [("after", self.after), ("grad_inputs", self.grad_inputs)]
        parts += [("grad_outputs", self.grad_outputs)]
        for name, value in parts:
            yield from leaves(value, name)

    def load(self, device: str | torch.device = "cpu") -> tuple[list, dict]:
        """Arguments and keywords to call the operator with again, tensors read."""
        loader = _Loader(device, STAND_INS, grads=self.grad_outputs is not None)
        args, kwargs = loader.load(self.args), loader.load(self.kwargs)
        return _as_call(self.schema, args, kwargs)

    def load_arguments(self, device: str | torch.device = "cpu") -> list:
        """The arguments in the schema's order, tensors read."""
        return _Loader(device, STAND_INS).load(self.args)

    def load_outputs(self, device: str | torch.device = "cpu") -> list:
        return _Loader(device).load(self.outputs)


class Capture:
    """A capture folder."""

    def __init__(self, path: str) -> None:
        self.path = os.fspath(path)
        log = os.path.join(self.path, LOG)
        if not os.path.isfile(log):
            raise CaptureError(f"{self.path} is no capture: it has no {LOG}")
        try:
            self._log = _C.CaptureLog(log)
        except (RuntimeError, OSError) as error:
            raise CaptureError(f"{log} cannot be read: {error}") from None
        self.problems: list[str] = []
        self.head: dict[str, str] = next(iter(self._frames(_HEAD, dict)), {})
        self._check(log)
        self.end: dict | None = next(iter(self._frames(_END, dict)), None)
        for offset, what in self._log.problems:
            self.problems.append(f"{log}: byte {offset}: {what}")
        self._names: dict[tuple[str, int], tuple[str, str]] = {}
        for table, number, text, more in self._frames(_DEFINITION, list, 4):
            self._names[table, number] = (text, more)
        self._blobs = {b[0].hex(): tuple(b[1:]) for b in self._frames(_BLOB, list, 4)}
        self._late = {late["number"]: late for late in self._frames(_LATE, dict)}

    def _check(self, log: str) -> None:
        if self.head.get("format") != FORMAT:
            if self._log.bytes and len(self._log):
                self.problems.append(f"{log}: its first frame is missing")
            else:
                raise CaptureError(f"{log} is no record log of op_tools")
        elif self.head.get("version") != VERSION:
            raise CaptureError(
                f"{log} has version {self.head.get('version')} of the format; this op_tools reads "
                f"version {VERSION}"
            )

    def _frames(self, kind: int, shape: type, size: int | None = None) -> list:
        good = []
        for value in self._log.all(kind):
            if isinstance(value, shape) and (size is None or len(value) == size):
                good.append(value)
            else:
                self.problems.append(f"{self.path}: a frame of kind {kind} holds {type(value)}")
        return good

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
            return self._record(self._log.record(index))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise CaptureError(f"{self.path}: record {index} cannot be read: {error!r}") from None

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
        pattern = re.compile(op) if op else None
        for record in self:
            if pattern and not (
                pattern.fullmatch(record.op) or pattern.fullmatch(record.op.split(".")[0])
            ):
                continue
            if phase in (None, record.phase) and step in (None, record.step):
                yield record

    def blob(self, name: str, nbytes: int) -> torch.Tensor:
        """Bytes by their hash, as a uint8 tensor."""
        if name not in self._blobs:
            raise CaptureError(f"{self.path}: no blob {name} (content {self.head.get('content')})")
        pack, offset, size = self._blobs[name]
        path = self._pack(pack)
        raw = bytearray(size)
        with builtins.open(path, "rb") as file:
            file.seek(offset)
            got = file.readinto(raw) if size else 0
        if got != size or size != nbytes:
            raise CaptureError(
                f"{path}: {size} bytes at {offset} expected for blob {name}, {got} are there"
            )
        if _C.hash_bytes(raw) != name:
            raise CaptureError(f"{path}: the bytes at {offset} are not those of blob {name}")
        return (
            torch.frombuffer(raw, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
        )

    def _pack(self, number: int) -> str:
        stem = os.path.join(self.path, f"pack-{number:05d}")
        for end in (".safetensors", ".part"):  # .part: its process ended before closing it
            if os.path.isfile(stem + end):
                return stem + end
        raise CaptureError(f"{stem}.safetensors is missing")

    def _record(self, raw: dict) -> Record:
        def name(table: str) -> tuple[str, str]:
            number = raw.get(table)
            if not number and table != "op":
                return "", ""
            return self._names.get((table, number), (f"{table} {number}", ""))

        op, schema = name("op")
        after = dict(raw.get("after", {}))
        outputs = self._value(raw.get("out", []))
        late = self._late.get(raw["number"])
        if late is not None:
            after.update(late["after"])
        grads = [raw.get("grad_inputs"), raw.get("grad_outputs")]
        return Record(
            number=raw["number"], op=op, schema=schema, phase=PHASES[raw.get("phase", 0)],
            step=raw.get("step", 0), thread=raw.get("thread", 0), sequence=raw.get("sequence", -1),
            sequence_thread=raw.get("sequence_thread", 0), forward=raw.get("forward", 0),
            api=name("api")[0], api_call=raw.get("api_call", 0), module=name("module")[0],
            site=name("site")[0], start_ns=raw.get("start", 0), end_ns=raw.get("end", 0),
            raised=raw.get("raised"), args=self._value(raw.get("args", [])),
            kwargs=self._value(raw.get("kwargs", {})), outputs=outputs,
            after={place: self._value(value) for place, value in after.items()},
            grad_inputs=None if grads[0] is None else self._value(grads[0]),
            grad_outputs=None if grads[1] is None else self._value(grads[1]),
            of_arguments=bool(raw.get("of_arguments")), rng=self._value(raw.get("rng")),
        )  # fmt: skip

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        if not isinstance(value, tuple):
            return value
        code, held = value
        if code == _TENSOR:
            return self._tensor(held)
        if code == _TUPLE:
            return tuple(self._value(item) for item in held)
        if code in (_DTYPE, _LAYOUT, _MEMORY_FORMAT):
            found = getattr(torch, held, None)
            kinds = (torch.dtype, torch.layout, torch.memory_format)
            return found if isinstance(found, kinds) else Opaque(held)
        if code == _DEVICE:
            return torch.device(held)
        if code == _COMPLEX:
            return complex(*held)
        if code == _UNDEFINED:
            return None
        return Opaque(f"generator of {held or 'no device'}" if code == _GENERATOR else str(held))

    def _tensor(self, raw: dict) -> TensorRef:
        flags = raw["f"]
        return TensorRef(
            capture=self, dtype=getattr(torch, raw["d"]), device=raw["v"],
            shape=tuple(raw.get("s", ())), stride=tuple(raw.get("t", ())),
            offset=raw.get("o", 0), storage=raw.get("a", 0),
            requires_grad=bool(flags & _REQUIRES_GRAD), flags=flags, hash=raw["h"].hex() if "h" in raw else None,
            nbytes=raw.get("n", 0), layout=raw.get("l", "strided"), reason=raw.get("w"),
        )  # fmt: skip


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


def leaves(value: object, name: str) -> Iterator[tuple[str, TensorRef]]:
    """The tensors in a value, each with its place."""
    if isinstance(value, TensorRef):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(item, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{name}[{key}]")


def load(value: object, device: str | torch.device = "cpu") -> object:
    """A value with its tensors read."""
    return _Loader(device).load(value)


class _Loader:
    """Loads the tensors of one record: what was one tensor is one tensor again."""

    def __init__(
        self,
        device: str | torch.device,
        stand_ins: tuple[str, ...] = (),
        grads: bool = False,
    ) -> None:
        self.device = device
        self.stand_ins = stand_ins
        self.grads = grads  # leaves want gradients where they did
        self.made: dict[tuple, torch.Tensor] = {}

    def load(self, value: object) -> object:
        if isinstance(value, TensorRef):
            key = (value.storage, value.offset, value.shape, value.stride, value.dtype, value.hash)
            if key not in self.made or not value.storage:
                self.made[key] = self._one(value)
            return self.made[key]
        if isinstance(value, (list, tuple)):
            return type(value)(self.load(item) for item in value)
        if isinstance(value, dict):
            return {key: self.load(item) for key, item in value.items()}
        if isinstance(value, torch.device):
            return torch.device(self.device) if value.type != "cpu" else value
        return value

    def _one(self, ref: TensorRef) -> torch.Tensor:
        device = "cpu" if ref.device == "cpu" else self.device
        if ref.reason in self.stand_ins:
            return torch.empty_strided(ref.shape, ref.stride, dtype=ref.dtype, device=device)
        tensor = ref.load(device)
        return tensor.detach().requires_grad_() if self.grads and ref.requires_grad else tensor


def _as_call(schema: str, args: list, kwargs: dict) -> tuple[list, dict]:
    """Positional and keyword arguments, as the operator's schema wants them."""
    if not schema:
        return args, kwargs
    arguments = torch._C.parse_schema(schema).arguments
    positional, named = [], dict(kwargs)
    for argument, value in zip(arguments, args):
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def resolve(op: str) -> Callable:
    """The function an operator or Python API name stands for. Names that are no function of
    PyTorch's, and operators nobody registered, raise CaptureError."""
    parts = op.removeprefix("torch.ops.").split(".")
    if op.startswith("torch.ops.") and len(parts) == 3:  # as `op-tools export` writes it
        op = f"{parts[0]}::{parts[1]}.{parts[2]}"
    if "::" in op:
        namespace, _, rest = op.partition("::")
        name, _, overload = rest.partition(".")
        try:
            return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        except (AttributeError, RuntimeError):
            raise CaptureError(f"no operator {op} in this PyTorch") from None
    function = _functions().get(op)
    if function is None:
        raise CaptureError(f"{op} is no function of PyTorch's that can be replayed")
    return function


@lru_cache(maxsize=1)
def _functions() -> dict[str, Callable]:
    """PyTorch's overridable functions and methods by name."""
    import torch.overrides as overrides

    found = {}
    for group in overrides.get_overridable_functions().values():
        for function in group:
            name = overrides.resolve_name(function)
            if name and callable(function):
                found[name] = function
    return found
