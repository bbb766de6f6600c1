# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's OpInfo lists for CUDA and not for the CPU: dtypes an accelerator is expected to have."""

import fnmatch

import torch
import torch.testing._internal.common_cuda as common_cuda
from wide_reference import REFUSED, dtypes_of

# The lists depend on the GPU that is there: as on one of today.
for name in dir(common_cuda):
    if name.startswith("SM") and name.endswith("OrLater"):
        setattr(common_cuda, name, True)

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

EXACT = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


def full_name(op) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


# torch 2.11 lists its integers for CUDA only: the samples divide by zero, for which CPUs raise.
DIVIDES_BY_ZERO = {"__rmod__"}


def cuda_only() -> list[tuple]:
    """(OpInfo, dtype), sorted by name."""
    known = [op for op in op_db if op.name not in DIVIDES_BY_ZERO]
    found = [(op, d) for op in known for d in op.dtypesIfCUDA - op.dtypes]
    return sorted(found, key=lambda row: (full_name(row[0]), str(row[1])))


def why_refused(op, dtype) -> str:
    for row in REFUSED:
        base = op.name.rpartition("torch.ops.aten.")[2]
        if fnmatch.fnmatch(base, row["func"]) and dtype in dtypes_of(row):
            return row["why"]
    return ""


def exact_dtype(dtype):
    """What the reference is computed in."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype
