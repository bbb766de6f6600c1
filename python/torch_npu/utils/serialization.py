# SPDX-License-Identifier: Apache-2.0
"""Saving while the program goes on."""

import io
import os
import pickle
import tempfile
import threading

import torch

__all__ = ["save_async"]


def save_async(
    obj: object,
    f,
    pickle_module=pickle,
    pickle_protocol: int = torch.serialization.DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    model: torch.nn.Module | None = None,
) -> threading.Thread:
    """torch.save, whose file is written by a thread of its own.

    The values are those of the call: tensors may be changed at once, so `model` need not be held
    back. A path is written under another name and renamed when it is whole. The thread is given
    back; the program does not end before it. join() waits, and `thread.error` is what went wrong.
    """
    whole = io.BytesIO()
    torch.save(
        obj,
        whole,
        pickle_module,
        pickle_protocol,
        _use_new_zipfile_serialization,
        _disable_byteorder_record,
    )
    writer = _Writer(whole.getbuffer(), f)
    writer.start()
    return writer


class _Writer(threading.Thread):
    def __init__(self, whole: memoryview, target):
        super().__init__(name="save_async", daemon=False)
        self._whole = whole
        self._target = target
        self.error: Exception | None = None
        if not hasattr(target, "write"):
            folder = os.path.dirname(os.path.abspath(os.fspath(target)))
            if not os.path.isdir(folder):
                raise RuntimeError(f"Parent directory {folder} does not exist.")

    def run(self) -> None:
        try:
            if hasattr(self._target, "write"):
                self._target.write(self._whole)
            else:
                self._replace(os.path.abspath(os.fspath(self._target)))
        except Exception as error:
            self.error = error
            raise  # threading.excepthook prints it

    def _replace(self, path: str) -> None:
        handle, unfinished = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".save_async_")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self._whole)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(unfinished, 0o666 & ~mask)
            os.replace(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise
