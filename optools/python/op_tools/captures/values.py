# SPDX-License-Identifier: Apache-2.0
"""Values in a capture: tensors with their contents still in the file, devices, things only named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from op_tools.core import _C, memory_limit
from op_tools.core.containers import copy_tensor
from op_tools.core.errors import CaptureError
from op_tools.core.printing import printable

if TYPE_CHECKING:
    from op_tools.captures import Capture

# Flags of tensors: docs/capture-format.md.
REQUIRES_GRAD, _CONJUGATE, _NEGATIVE, _WRAPPED, _PACKED = 1, 2, 4, 8, 16
# Arguments without contents that no operator reads: memory of that shape will do.
STAND_INS = ("an out argument", "a view only")


@dataclass(frozen=True)
class Opaque:
    """A value that captures name but do not hold: a process group, a generator."""

    kind: str

    def __repr__(self) -> str:
        return f"<{self.kind}>"


@dataclass(frozen=True)
class Device:
    """A device this PyTorch has no name for (its plugin is not here); prints as it was."""

    text: str

    @property
    def type(self) -> str:
        return self.text.partition(":")[0]

    def __repr__(self) -> str:
        kind, _, index = self.text.partition(":")
        return f"device(type={kind!r}, index={index})" if index else f"device(type={kind!r})"


def device_named(text: str) -> torch.device | Device:
    try:
        return torch.device(text)
    except RuntimeError:
        return Device(printable(text))


@dataclass
class TensorRef:
    """A tensor as captured; load() reads its contents."""

    capture: Capture = field(repr=False, compare=False)
    record: int  # number of the call it is of
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
        return math.prod(self.shape)

    @property
    def identity(self) -> tuple:
        """Equal within a record: one tensor."""
        return self.storage, self.offset, self.shape, self.stride, self.dtype, self.hash

    def describe(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        if self.layout != "strided":
            return f"{name}({self.layout})"
        return f"{name}{list(self.shape)}".replace(" ", "")

    def load(self, device: str | torch.device = "cpu") -> torch.Tensor:
        """The tensor, with its dtype, strides and bits. Raises CaptureError without contents, and
        where so few bytes are repeated so often that nothing could be computed with it."""
        if self.numel * self.dtype.itemsize > self.nbytes:
            self._check_size(self.numel)
        return self.laid_out(device)

    def laid_out(self, device: str | torch.device = "cpu") -> torch.Tensor:
        """The same, however often elements are repeated: to be looked at, not to compute with."""
        if self.numel and self.hash is None:
            raise CaptureError(f"{self.describe()} was captured without contents: {self.reason}")
        tensor = self._made()
        tensor = tensor if torch.device(device).type == "cpu" else copy_tensor(tensor, device)
        if self.flags & _CONJUGATE:
            tensor = tensor.conj()
        if self.flags & _NEGATIVE:
            tensor = torch._neg_view(tensor)
        if self.is_number:
            _C.set_wrapped_number(tensor)
        return tensor

    @property
    def is_number(self) -> bool:
        """A Python number that PyTorch made a tensor of: it does not decide a result's dtype."""
        return bool(self.flags & _WRAPPED) and not self.shape

    def blank(self, device: str | torch.device) -> torch.Tensor:
        """Memory of its shape, for what is only written."""
        self._check_size(max(self.numel, self.span))
        with _damage(self):
            return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)

    @property
    def span(self) -> int:
        """Elements from its first one in memory to its last."""
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride)) if self.numel else 0

    def _check_size(self, elements: int) -> None:
        """Before memory is asked for: a system may promise any amount of it."""
        claimed = elements * self.dtype.itemsize
        if memory_limit.is_too_much(claimed):
            raise CaptureError(
                f"{self.capture.log}: record {self.record}: {self.describe()} claims to be "
                f"{claimed / 2**30:.3g} GiB, of {self.nbytes} bytes in the file: more than can be "
                "computed with in this machine's memory"
            )

    def _made(self) -> torch.Tensor:
        if self.numel == 0:
            return self.blank("cpu")
        flat = self.elements()
        with _damage(self):
            return self._shaped(flat)

    def elements(self) -> torch.Tensor:
        """The contents as they are stored, in one dimension."""
        raw = self.contents()
        with _damage(self):
            return raw.view(self.dtype)

    def contents(self) -> torch.Tensor:
        """The same as bytes."""
        return self.capture.blob(self.hash, self.nbytes)

    def _shaped(self, flat: torch.Tensor) -> torch.Tensor:
        if not self.flags & _PACKED:
            return flat.as_strided(self.shape, self.stride)
        order = sorted(range(len(self.shape)), key=lambda d: (-self.stride[d], d))
        dense = flat.view([self.shape[d] if self.stride[d] else 1 for d in order])
        if self.span > max(64 * flat.numel(), 1 << 20):  # mostly holes: strides are not worth it
            back = [order.index(d) for d in range(len(order))]
            return dense.permute(back).expand(self.shape)
        whole = torch.zeros(self.span, dtype=self.dtype)
        kept = [self.shape[d] if self.stride[d] else 1 for d in order]
        whole.as_strided(kept, [self.stride[d] for d in order]).copy_(dense)
        return whole.as_strided(self.shape, self.stride)


class _damage:
    """What PyTorch says of sizes and strides that cannot be is told as the file's fault."""

    def __init__(self, ref: TensorRef) -> None:
        self.ref = ref

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, (RuntimeError, TypeError, OverflowError, MemoryError)):
            return
        ref = self.ref
        raise CaptureError(
            f"{ref.capture.log}: record {ref.record}: a tensor of sizes {list(ref.shape)} and "
            f"strides {list(ref.stride)} cannot be laid over its {ref.nbytes} bytes of contents"
        ) from None


def leaves(value: object, name: str) -> Iterator[tuple[str, TensorRef]]:
    """The tensors in a value, each with its place."""
    for place, leaf in all_leaves(value, name):
        if isinstance(leaf, TensorRef):
            yield place, leaf


def all_leaves(value: object, name: str) -> Iterator[tuple[str, object]]:
    """Everything in a value that is no container, each with its place."""
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from all_leaves(item, f"{name}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from all_leaves(item, f"{name}[{key}]")
    else:
        yield name, value


def brief(value: object) -> str:
    """A value in a few characters."""
    if isinstance(value, TensorRef):
        return value.describe()
    if isinstance(value, (list, tuple)):
        shown = [brief(item) for item in value[:4]] + ["..."] * (len(value) > 4)
        return "[" + ",".join(shown) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{printable(str(key))}:{brief(item)}" for key, item in value.items())
            + "}"
        )
    return printable(repr(value))


def load(value: object, device: str | torch.device = "cpu") -> object:
    """A value with its tensors read."""
    return Loader(device).load(value)


class Loader:
    """Loads the tensors of one record: what was one tensor is one tensor again.

    Devices named among the values become `named`, which is `device` unless it is given.
    """

    def __init__(
        self,
        device: str | torch.device,
        stand_ins: tuple[str, ...] = (),
        grads: bool = False,
        named: str | torch.device | None = None,
    ) -> None:
        self.device = device
        self.stand_ins = stand_ins
        self.grads = grads  # leaves want gradients where they did
        self.named = torch.device(named or device)
        self.made: dict[tuple, torch.Tensor] = {}

    def load(self, value: object) -> object:
        if isinstance(value, TensorRef):
            key = value.identity
            if key not in self.made or not value.storage:
                self.made[key] = self._one(value)
            return self.made[key]
        if isinstance(value, (list, tuple)):
            return type(value)(self.load(item) for item in value)
        if isinstance(value, dict):
            return {key: self.load(item) for key, item in value.items()}
        if isinstance(value, (torch.device, Device)):
            return self.named if value.type != "cpu" else value
        return value

    def _one(self, ref: TensorRef) -> torch.Tensor:
        device = "cpu" if ref.device == "cpu" else self.device
        if ref.reason in self.stand_ins:
            return ref.blank(device)
        tensor = ref.load(device)
        return tensor.detach().requires_grad_() if self.grads and ref.requires_grad else tensor
