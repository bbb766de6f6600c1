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

No file is ever unpickled, and `resolve` knows functions of PyTorch's that compute only (see
core/allowed_functions.py): reading and replaying a capture runs no code out of it and touches no file.
"""

from op_tools.captures.reader import (
    PHASES,
    Capture,
    Record,
    arguments_of,
    find,
    open,
)
from op_tools.captures.values import (
    STAND_INS,
    Device,
    Opaque,
    TensorRef,
    all_leaves,
    brief,
    leaves,
    load,
)
from op_tools.core.allowed_functions import resolve
from op_tools.core.capture_format import FORMAT, LOG, VERSION
from op_tools.core.errors import CaptureError

__all__ = [
    "FORMAT",
    "LOG",
    "PHASES",
    "STAND_INS",
    "VERSION",
    "Capture",
    "CaptureError",
    "Device",
    "Opaque",
    "Record",
    "TensorRef",
    "all_leaves",
    "arguments_of",
    "brief",
    "find",
    "leaves",
    "load",
    "open",
    "resolve",
]
