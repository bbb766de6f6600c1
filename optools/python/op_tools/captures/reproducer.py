# SPDX-License-Identifier: Apache-2.0
"""One captured call as a folder that stands alone: its tensors, and a script of a few lines.

    reproducer.write(record, folder)
    python folder/reproduce.py [device]      # needs torch and safetensors, nothing of ours

The script makes the call on the device, says how far the results are from those of float64 on the
cpu and from what was captured. `call.json` tells what it is: `op-tools report` links to it.
"""

from __future__ import annotations

import json
import keyword
import os
import re
from collections.abc import Iterator

import torch

from op_tools import captures
from op_tools.captures import CaptureError, Opaque, Record, TensorRef
from op_tools.core import quiet
from op_tools.core.allowed_functions import python_name
from op_tools.core.files import whole, write_whole
from op_tools.core.results import plain

FORMAT = "op_tools reproducer"
CALL, TENSORS, SCRIPT = "call.json", "tensors.safetensors", "reproduce.py"
_NAME = re.compile(r"[A-Za-z_]\w*::\w+(\.\w+)?", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MOST = 1 << 32  # bytes of a tensor in it, where most of them are the same elements again

# The script is ASCII, and its first line says so: no text of the capture's in a comment can name
# another encoding, in which it might be code.
_TEXT = """\
# -*- coding: ascii -*-
# {title}
# {place}
import os
import sys

import torch
from safetensors.torch import load_file
from torch.utils._pytree import tree_leaves

device = sys.argv[1] if len(sys.argv) > 1 else "{device}"
saved = load_file(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{tensors}"))
strides = {strides}


def call(device, dtype=lambda kind: kind):
    def give(name):
        x = saved[name]
        layout = strides.get(name, x.stride())
        return torch.empty_strided(x.shape, layout, dtype=dtype(x.dtype), device=device).copy_(x)

{body}
    return [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]


def wide(kind):
    return torch.float64 if kind.is_floating_point else torch.complex128 if kind.is_complex else kind


got = call(device)
try:
    exact = call("cpu", wide)
except (RuntimeError, NotImplementedError) as error:
    exact = [None] * len(got)
    print("no float64 reference:", *str(error).splitlines()[:1])
for i, mine in enumerate(got):
    for what, other in (("float64 on the cpu", exact[i]), ("what was captured", saved.get(f"result{{i}}"))):
        if other is not None and mine.numel():
            gap = (mine.cpu().to(torch.complex128) - other.to(torch.complex128)).abs().max().item()
            print(f"result {{i}}: {{mine.dtype}} {{tuple(mine.shape)}}, at most {{gap:.6g}} from {{what}}")
"""


def folder_name(record: Record) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', record.op)}-call{record.number}"


class _Source:
    """Arguments as Python source; tensors by name, one that is given twice under one name."""

    def __init__(self) -> None:
        self.names: dict[tuple, str] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.strides: dict[str, tuple[int, ...]] = {}

    def of(self, value: object) -> str:
        if isinstance(value, TensorRef) and value.is_number and value.hash is not None:
            return self.of(value.load().item())
        if isinstance(value, TensorRef):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.of, value)) + "]"
        if isinstance(value, (torch.device, captures.Device)):
            return ascii("cpu") if value.type == "cpu" else "device"
        if isinstance(value, torch.dtype):
            return f"dtype({value})"
        if isinstance(value, (torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, float):
            return repr(value) if abs(value) < float("inf") else f"float({str(value)!r})"
        if isinstance(value, complex):
            return f"complex({self.of(value.real)}, {self.of(value.imag)})"
        if isinstance(value, Opaque) and value.kind.startswith("generator"):
            return "None"
        if value is None or isinstance(value, (bool, int, str)):
            return ascii(value)
        raise CaptureError(f"its argument {value!r} cannot be in a script")

    def _tensor(self, ref: TensorRef) -> str:
        key = ref.identity
        if key in self.names and ref.storage:
            return self.names[key]
        name = self.names[key] = f"t{len(self.tensors)}"
        if ref.numel * ref.dtype.itemsize > max(MOST, 64 * ref.nbytes):
            raise CaptureError(f"{ref.describe()}: too large for a file of its own")
        if ref.reason in captures.STAND_INS:
            held = torch.zeros(ref.shape, dtype=ref.dtype)
        else:
            held = ref.load().resolve_conj().resolve_neg().detach()
        self.tensors[name] = held.contiguous().clone()
        dense = all(step or size < 2 for step, size in zip(ref.stride, ref.shape))
        if not held.is_contiguous() and dense:
            self.strides[name] = tuple(ref.stride)
        return name


def _line(text: str) -> str:
    """For a comment: one line of ASCII."""
    return ascii(text)[1:-1][:300]


def _body(record: Record, source: _Source) -> str:
    arguments = captures.arguments_of(record.schema)
    given = []
    for argument, value in zip(arguments, record.args):
        if not _WORD.fullmatch(argument.name) or keyword.iskeyword(argument.name):
            raise CaptureError(f"its argument's name {argument.name!r} cannot be in a script")
        text = source.of(value)
        given.append(f"{argument.name}={text}" if argument.kwarg_only else text)
    lines = [f'{t} = give("{t}")' for t in source.tensors]
    lines.append(f"result = {python_name(record.op)}({', '.join(given)})")
    written = [source.of(record.args[place]) for place in sorted(record.after)]
    if written:
        lines.append(f"result = [result, {', '.join(written)}]")
    return "\n".join("    " + line for line in lines)


def _results(record: Record) -> dict[str, torch.Tensor]:
    found = {}
    after = [record.after[place] for place in sorted(record.after)]
    for i, (_, ref) in enumerate(captures.leaves([*record.outputs, *after], "")):
        if ref.hash is not None:
            held = ref.load().resolve_conj().resolve_neg()
            found[f"result{i}"] = held.detach().contiguous().clone()
    return found


def write(record: Record, folder: str, verdict: str = "") -> str:
    """Writes the folder; returns the script's path. Raises CaptureError where it cannot be. Its
    files take the place of links in it, and are never written through one."""
    from safetensors.torch import save_file

    if not _NAME.fullmatch(record.op) or not record.schema:
        raise CaptureError(f"{record.op} is no operator of the dispatcher")
    captures.resolve(record.op)
    source = _Source()
    with quiet():
        try:
            body = _body(record, source)
            tensors = {**source.tensors, **_results(record)}
        except (RuntimeError, MemoryError) as error:  # larger than memory: an expanded tensor
            raise error if isinstance(error, CaptureError) else CaptureError(str(error)) from None
        os.makedirs(folder, exist_ok=True)
        try:
            with whole(os.path.join(folder, TENSORS), follow=False) as name:
                save_file(tensors, name)
        except (KeyError, ValueError, RuntimeError) as error:
            raise CaptureError(f"safetensors cannot hold its tensors: {error}") from None
    devices = [ref.device for _, ref in record.tensors() if ref.device != "cpu"]
    device = devices[0] if devices and re.fullmatch(r"\w+(:\d+)?", devices[0], re.ASCII) else "cpu"
    text = _TEXT.format(
        title=_line(f"{record.op}, call {record.number}: {verdict}".rstrip(": ")),
        place=_line(f"{record.phase}, step {record.step}, {record.module} {record.site}"),
        device=device,
        tensors=TENSORS,
        strides=source.strides,
        body=body,
    )
    path = os.path.join(folder, SCRIPT)
    write_whole(path, text, follow=False)
    taken = next((ref.capture.head.get("time") for _, ref in record.tensors()), None)
    about = {
        "format": FORMAT, "capture": taken, "op": record.op, "number": record.number, "phase": record.phase,
        "step": record.step, "module": record.module, "site": record.site, "verdict": verdict,
        "torch": torch.__version__,
    }  # fmt: skip
    write_whole(os.path.join(folder, CALL), json.dumps(plain(about), indent=1), follow=False)
    return path


def find(path: str, problems: list[str] | None = None) -> Iterator[tuple[str, dict]]:
    """(folder, what it is of) for reproducers at or below a path."""
    for folder, _, files in os.walk(path):
        if CALL not in files or SCRIPT not in files:
            continue
        if not os.path.isfile(os.path.join(folder, CALL)):
            continue
        try:
            with open(os.path.join(folder, CALL), encoding="utf-8") as file:
                held = json.load(file)
        except (ValueError, OSError, RecursionError) as error:
            if problems is not None:
                problems.append(f"{os.path.join(folder, CALL)} cannot be read: {error}")
            continue
        if isinstance(held, dict) and held.get("format") == FORMAT and "capture" in held:
            yield folder, held
