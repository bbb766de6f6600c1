# SPDX-License-Identifier: Apache-2.0
"""OP_CAPTURE_FORMAT=ditorch: its folders of .pth and .json files, one per API call."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import threading
import time

from op_tools.core import options
from op_tools.core.tables import dict_data_list_to_table
from op_tools.ditorch_compat.base_hook import BaseHook
from op_tools.ditorch_compat.ditorch_folders import OF_ARGUMENTS
from op_tools.ditorch_compat.save_op_args import FOLDER, serialize_args_to_dict, write_args
from op_tools.ditorch_compat.tool_hooks import argument_rows

OLD_FOLDER = "op_capture_result"
_old_starts: dict[tuple[int, str], str] = {}  # by process and folder
_lock = threading.Lock()


def _newest(name: str, number: int, part: str) -> tuple[str, str]:
    """(folder, identifier) of a call."""
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    identifier = os.path.join(*filter(None, (part, str(number), stamp)))
    return os.path.join(FOLDER, name, str(os.getpid()), identifier), identifier


def _of_2024_08(name: str, number: int, part: str) -> tuple[str, str]:
    folder = os.path.join(os.path.abspath(OLD_FOLDER), options.rank() or "0")
    with _lock:
        start = _old_starts.get((os.getpid(), folder)) or _new_start(folder)
        _old_starts[os.getpid(), folder] = start
    path = os.path.join(OLD_FOLDER, os.path.basename(folder), start, name, str(number))
    return path, str(number)


def _new_start(folder: str) -> str:
    """A time that no other process writes under: <date>, or <date>.n."""
    os.makedirs(folder, exist_ok=True)
    stamp = time.strftime("%Y-%m-%d--%H-%M")
    start = stamp
    for n in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(folder, start))
            break
        start = f"{stamp}.{n}"
    return start


class CallFolder:
    """Where one call's files go."""

    def __init__(self, name: str, number: int, part: str = "", layout: str = "ditorch") -> None:
        place = _of_2024_08 if layout == "ditorch-2024-08" else _newest
        self.name = name
        self.path, self.identifier = place(name, number, part)

    def inside(self, part: str) -> CallFolder:
        """A folder in this one."""
        inner = copy.copy(self)
        inner.path = os.path.join(self.path, part)
        inner.identifier = os.path.join(self.identifier, part)
        return inner

    def save(self, what: str, args: tuple, kwargs: dict | None = None) -> None:
        path = os.path.join(self.path, what)
        write_args(path, self.name, os.path.join(self.identifier, what), args, kwargs or {})
        print(f"{path}.pth saved")


class OpCaptureHook(BaseHook):
    family = "CAPTURE"
    label = "OpCaptureHook"

    def before_call_op(self, *args, **kwargs):
        layout = options.capture_format()
        self.is_old = layout == "ditorch-2024-08"
        self.folder = CallFolder(self.name, self.forward_id, layout=layout)
        self.given = serialize_args_to_dict(*args, **kwargs)
        self._save("input", args, kwargs)

    def after_call_op(self, result):
        self._save("output", (result,))
        if self.tool is not None:
            self.tool.saved += 1
        made = serialize_args_to_dict(result)
        self._tell(f"    {self.place}", ("inputs", self.given), ("outputs", made))

    def backward(self, grad_inputs, grad_outputs):
        self._save("grad_inputs", grad_inputs, {OF_ARGUMENTS: True})
        self._save("grad_outputs", grad_outputs)
        self._tell(
            "",
            ("grad_output", serialize_args_to_dict(*grad_outputs)),
            ("grad_inputs", serialize_args_to_dict(*grad_inputs)),
        )

    def _save(self, what: str, args: tuple, kwargs: dict | None = None) -> None:
        if self.tool is not None and self.tool.gave_up:
            return
        try:
            self.folder.save(what, args, kwargs)
        except OSError as error:  # the disk: one message, and training goes on
            print(f"OpCapture: stopped writing, {error}; what was written so far is whole")
            if self.tool is not None:
                self.tool.gave_up = True
        except Exception as error:  # a value that torch.save cannot write
            print(f"{self.name}: {what} could not be saved to {self.folder.path}: {error}")

    def _tell(self, place: str, *parts: tuple[str, dict]) -> None:
        if self.is_old or not options.verbose():
            return
        between = "    " if place else " "
        print(f"{self.name}{between}forward_id:{self.folder.identifier}{place}")
        print(dict_data_list_to_table(argument_rows(*parts)))
