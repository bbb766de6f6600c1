# SPDX-License-Identifier: Apache-2.0
"""OpCapture: every operator's arguments and results, in files that op_tools.captures reads."""

from __future__ import annotations

import contextlib
import os

from op_tools.core import _C, options, results, threads
from op_tools.core.capture_format import head, new_folder
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import many, print_reasons

CONTENTS = ("none", "hash", "full")
MIB = 1 << 20


class OpCapture(OpTool):
    """Captures into `folder`, a new one per start().

    Set before start(), or by the variable named: `content` (OP_CAPTURE_CONTENT: full, hash or
    none), `max_mb` of files (OP_CAPTURE_MAX_MB), `max_tensor_mb` (OP_CAPTURE_MAX_TENSOR_MB:
    larger tensors without their contents), `max_calls` of one operator (OP_CAPTURE_MAX_CALLS),
    `min_free_mb` the disk keeps (OP_CAPTURE_MIN_FREE_MB), `steps` (OP_CAPTURE_STEPS: 3 or 3-7),
    `views` (OP_CAPTURE_VIEWS=1: contents also of the tensors an operator only makes views of).
    OP_CAPTURE_DIR is where folders are made.

    With OP_CAPTURE_FORMAT=ditorch (or ditorch-2024-08) its folders are written instead, one per
    API call; see capture_hook.py.
    """

    family = "CAPTURE"
    feature = "op_capture"
    variables = (
        "DIR",
        "FORMAT",
        "CONTENT",
        "MAX_MB",
        "MAX_TENSOR_MB",
        "MAX_CALLS",
        "MIN_FREE_MB",
        "VIEWS",
        "QUEUE_MB",
        "PACK_MB",
    )

    def __init__(self) -> None:
        super().__init__()
        self.folder: str | None = None
        self.call_sites = True
        self.module_paths = True
        self.content: str | None = None
        self.max_mb: int | None = None
        self.max_tensor_mb: int | None = None
        self.max_calls: int | None = None
        self.min_free_mb: int | None = None
        self.views: bool | None = None

    def start(self) -> OpCapture:
        self._format = options.capture_format()
        self.saved = 0  # calls in ditorch's folders
        return super().start()

    @property
    def speaks(self) -> bool:
        return self._format != "native"

    @property
    def takes_kernels(self) -> bool:
        return self._format == "native"

    def make_core(self) -> _C.Tool:
        if not self.takes_kernels:
            return _C.Observe(1)
        content = self.content or options.text("OP_CAPTURE_CONTENT", "full").strip()
        if content not in CONTENTS:
            raise ValueError(f"OP_CAPTURE_CONTENT={content!r}: expected one of {CONTENTS}")

        def limit(value: int | None, name: str, default: int) -> int:
            return options.number(name, default) if value is None else value

        limits = {
            "max_bytes": limit(self.max_mb, "OP_CAPTURE_MAX_MB", 0) * MIB,
            "max_tensor_bytes": limit(self.max_tensor_mb, "OP_CAPTURE_MAX_TENSOR_MB", 0) * MIB,
            "max_calls": limit(self.max_calls, "OP_CAPTURE_MAX_CALLS", 0),
            "views": bool(limit(self.views, "OP_CAPTURE_VIEWS", 0)),
            "min_free": limit(self.min_free_mb, "OP_CAPTURE_MIN_FREE_MB", 1024) * MIB,
            "queue_bytes": options.number("OP_CAPTURE_QUEUE_MB", 256) * MIB,
            "pack_bytes": options.number("OP_CAPTURE_PACK_MB", 256) * MIB,
        }
        self.folder = new_folder()
        return _C.Capture(
            self.folder,
            head(content=content, devices=",".join(options.devices())),
            content=CONTENTS.index(content),
            **limits,
        )

    def totals(self) -> dict[str, int]:
        """records, refused, operand_bytes, seen_bytes (read), blob_bytes, log_bytes, blobs, packs."""
        return (self._core or self._last).totals()

    def unread(self) -> dict[str, int]:
        """Tensors recorded without contents: reason -> count; after stop()."""
        return self._last.unread()

    def stop(self) -> None:
        named = threads.names() if self.is_running and self.takes_kernels else {}
        super().stop()
        if named and self.folder is not None:
            self._name_threads(named)

    end = stop

    def _name_threads(self, named: dict[int, str]) -> None:
        """threads.json beside the records, for reports."""
        rows = [{"number": number, "name": name} for number, name in named.items()]
        # A full disk has been told of already.
        with contextlib.suppress(OSError):
            path = os.path.join(self.folder, results.THREADS)
            results.save(path, "threads", ["number", "name"], rows)

    def report(self) -> None:
        if not self.takes_kernels:
            print(f"OpCapture: {many(self.saved, 'call')} saved in ditorch's folders")
            return
        core = self._last
        totals = core.totals()
        written = (totals["blob_bytes"] + totals["log_bytes"]) / MIB
        share = totals["blob_bytes"] / max(totals["operand_bytes"], 1)
        print_reasons("OpCapture", "tensor", "without contents", core.unread().items())
        if totals["refused"]:
            print(f"OpCapture: {many(totals['refused'], 'call')} not captured: {core.why_closed}")
        print(
            f"OpCapture: {many(totals['records'], 'call')} in {self.folder}, {written:.1f} MiB "
            f"({share:.0%} of the operands' bytes)"
        )
