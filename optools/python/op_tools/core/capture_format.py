# SPDX-License-Identifier: Apache-2.0
"""What a capture's folder is called, and what it says about itself."""

from __future__ import annotations

import os
import time

import torch

from op_tools.core import options

LOG = "records.oplog"
FORMAT, VERSION = "op_tools capture", "2"
READABLE = ("1", VERSION)
FOLDER = os.path.join("op_tools_results", "op_capture")


def new_folder(parent: str | None = None) -> str:
    """A folder that did not exist: <time>-pid<pid>[-rank<rank>][.n]."""
    parent = parent or options.text("OP_CAPTURE_DIR").strip() or FOLDER
    os.makedirs(parent, exist_ok=True)
    name = f"{time.strftime('%Y-%m-%d-%H-%M-%S')}-pid{os.getpid()}"
    if options.rank() is not None:
        name += f"-rank{options.rank()}"
    for n in range(1_000_000):
        path = os.path.join(parent, name if n == 0 else f"{name}.{n}")
        try:
            os.mkdir(path)
            return path
        except FileExistsError:
            continue
    raise FileExistsError(f"no free name for a capture in {parent}")


def head(**more: str) -> dict[str, str]:
    """What a capture says about itself."""
    made = {
        "format": FORMAT,
        "version": VERSION,
        "torch": torch.__version__,
        "pid": str(os.getpid()),
        "time": f"{time.time():.3f}",
        **more,
    }
    if options.rank() is not None:
        made["rank"] = options.rank()
    return made
