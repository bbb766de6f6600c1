# SPDX-License-Identifier: Apache-2.0
"""Reads ditorch's capture folders, of any age, without running anything out of a file.

A folder with an input.pth is a case. Newest: op_tools_results/op_capture_results/<op>/<pid>/<id>/
<time>/; August 2024: op_capture_result/<rank>/<date>/<op>/<n>/, or op_capture_result/<op>/<n>/.
"""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from op_tools.core import first_line, quiet
from op_tools.core.containers import transform_contrainer
from op_tools.core.errors import CaptureError
from op_tools.ditorch_compat.save_op_args import memory_format_of

INPUT = "input.pth"
DEEPEST = 100  # containers in containers
LONGEST_RANGE = 1_000_000
# In our files of gradients: they are the arguments', not those of the result's autograd node.
OF_ARGUMENTS = "of_arguments"


class CaseError(CaptureError):
    """A case cannot be read; the text says what is wrong and where."""


@dataclass
class Case:
    """One captured call; what was not captured, or cannot be read, is None."""

    folder: str
    name: str
    args: tuple
    kwargs: dict
    output: tuple | None = None
    grad_inputs: tuple | None = None
    grad_outputs: tuple | None = None
    of_arguments: bool = False  # grad_inputs: one per tensor argument
    after: dict[int, object] = field(default_factory=dict)  # what it wrote, by argument
    random: bool = False  # its values cannot be had again
    on_cpu: bool = False  # it surely ran there when it was captured
    problems: list[str] = field(default_factory=list)


def find(path: str) -> list[str]:
    """Folders at or below a path that hold a case."""
    return sorted(
        folder
        for folder, _, files in os.walk(path)
        if INPUT in files and os.path.isfile(os.path.join(folder, INPUT))
    )


@lru_cache(maxsize=1)
def _harmless() -> list:
    """Types a captured argument may have whose construction does nothing else."""
    found = [slice, torch.device, torch.Size, complex, set]
    for name in dir(torch.return_types):
        kind = getattr(torch.return_types, name)
        if isinstance(kind, type) and issubclass(kind, tuple):
            found.append(kind)
    return [*found, (_short_range, "builtins.range"), (Ellipsis, "builtins.Ellipsis")]


def _short_range(*ends: int) -> range:
    """In a few bytes a file can name an endless one, and a set or a Counter of it."""
    made = range(*ends)
    if len(made) > LONGEST_RANGE:
        raise pickle.UnpicklingError(f"GLOBAL {made} is too long")
    return made


def _is_too_deep(value: object) -> bool:
    """Also of what holds itself. Without recursion: where Python's stack ends, the process may end."""
    waiting = [(value, 0)]
    while waiting:
        held, depth = waiting.pop()
        if depth > DEEPEST:
            return True
        if isinstance(held, dict):
            held = [*held.keys(), *held.values()]
        if isinstance(held, (list, tuple, set, frozenset)):
            waiting += [(item, depth + 1) for item in held]
    return False


def _load(path: str) -> dict:
    """The dictionary in a file; CaseError for what is truncated, foreign or would run code."""
    try:
        with quiet(), torch.serialization.safe_globals(_harmless()):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = f" ({named[1]})" if named else ""
        raise CaseError(f"{path} holds more than plain data{what}, and is not read") from None
    except MemoryError:
        raise CaseError(f"{path} takes more memory than there is") from None
    except Exception as error:  # a damaged or foreign file can make the reader raise anything
        first = first_line(error)
        if "can't allocate" in first or "not enough memory" in first:
            raise CaseError(f"{path} takes more memory than there is: {first}") from None
        device = re.search(r"at start of device string: (\w+)", first)
        if device:
            raise CaseError(
                f"{path} names {device[1]}, a device that this PyTorch does not have: its plugin "
                "has to be there"
            ) from None
        raise CaseError(f"{path} is no file of torch.save, or a part of one: {first}") from None
    if not isinstance(content, dict) or not isinstance(content.get("args"), (tuple, list)):
        raise CaseError(f"{path} is no file of a call: it has no `args`")
    if not isinstance(content.get("kwargs") or {}, dict):
        raise CaseError(f"{path}: `kwargs` is no dictionary")
    if _is_too_deep(content):
        raise CaseError(f"{path}: its values are nested too deeply")
    return content


def _name_in(folder: str) -> str | None:
    """The API's name, where the folder's path has it."""
    parts = [part for part in os.path.abspath(folder).split(os.sep) if "." in part]
    return next((part for part in reversed(parts) if part.split(".")[0].isidentifier()), None)


def _optional(case: Case, what: str) -> dict | None:
    path = os.path.join(case.folder, f"{what}.pth")
    if not os.path.isfile(path):
        return None
    try:
        return _load(path)
    except CaseError as error:
        case.problems.append(str(error))
        return None


def load(folder: str) -> Case:
    """Raises CaseError where the arguments cannot be read; lesser problems are in the case."""
    content = _load(os.path.join(folder, INPUT))
    name = content.get("name") or _name_in(folder)
    if not isinstance(name, str):
        raise CaseError(f"{os.path.join(folder, INPUT)} does not say which operator it is of")
    args, kwargs = (
        transform_contrainer(part, memory_format_of)
        for part in (tuple(content["args"]), dict(content.get("kwargs") or {}))
    )
    case = Case(folder, name, args, kwargs)
    output = _optional(case, "output")
    case.output = None if output is None else tuple(output["args"])
    given, received = _optional(case, "grad_inputs"), _optional(case, "grad_outputs")
    if given is not None:
        case.grad_inputs = tuple(given["args"])
        case.of_arguments = bool((given.get("kwargs") or {}).get(OF_ARGUMENTS))
    case.grad_outputs = None if received is None else tuple(received["args"])
    return case
