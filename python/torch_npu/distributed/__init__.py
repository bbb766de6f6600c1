# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on npu: the backends `hccl` and `lccl`."""

from __future__ import annotations

import atexit
import json
import os
import pickle
from datetime import timedelta
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from torch_npu import _C

_C._bind_distributed(_C)
atexit.register(_C._end_lanes)
ProcessGroupHCCL: TypeAlias = _C.ProcessGroupHCCL
ProcessGroupHCCL.Options = _C.ProcessGroupHCCLOptions


def _comm_name(self: ProcessGroupHCCL, rank: int, init_comm: bool = True) -> str:
    """What Ascend's operators with a collective inside take as `hcom`: here the name of the group."""
    return self.options.group_name


ProcessGroupHCCL.get_hccl_comm_name = _comm_name

__all__ = [
    "ProcessGroupHCCL",
    "collective_transports",
    "is_hccl_available",
    "is_lccl_available",
    "write_flight_record",
]


def is_hccl_available() -> bool:
    return True


def is_lccl_available() -> bool:
    return True


def collective_transports() -> dict[str, dict[str, int]]:
    """How the collectives of this process were carried out so far, counted by name.

    driver: the driver's own communicator; shared: Gloo on the device's bytes; staged: Gloo on copies in host memory.
    """
    found = _C._distributed_c10d._collective_transports()
    names = ("driver", "shared", "staged")
    return {
        name: {kind: n for kind, n in zip(names, counts, strict=True) if n}
        for name, counts in sorted(found.items())
    }


def _dump_json(includeCollectives: bool = True, onlyActive: bool = False) -> bytes:
    """torch_npu's name for the flight record as JSON, without stacks."""
    record = _C._distributed_c10d._dump_hccl_trace(includeCollectives, False, onlyActive)
    return json.dumps(pickle.loads(record)).encode()


_C._distributed_c10d._dump_hccl_trace_json = _dump_json


def write_flight_record() -> str:
    """Writes the last collectives of this process for `torch.distributed.flight_recorder.fr_trace`.

    TORCH_HCCL_DEBUG_INFO_TEMP_FILE says where; the path is returned.
    """
    return _C._distributed_c10d._write_hccl_trace(dist.get_rank() if dist.is_initialized() else 0)


def _make_gloo(store: dist.Store, rank: int, size: int, options: object) -> dist.ProcessGroupGloo:
    """What moves the bytes. It keeps the ranks' names as torch itself gives them to it."""
    gloo = dist.ProcessGroupGloo(
        dist.PrefixStore("npu/gloo", store), rank, size, timeout=options._timeout
    )
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_name
    return gloo


def _exec_timeout() -> int | None:
    """In whole seconds."""
    text = os.environ.get("HCCL_EXEC_TIMEOUT")
    if text is None:
        return None
    if not text.isdigit() or not 1 <= int(text) <= 2_147_483:
        raise ValueError(
            f"HCCL_EXEC_TIMEOUT={text!r}: a whole number of seconds from 1 to 2147483 is expected. "
            "Correct it or unset it."
        )
    return int(text)


def _create(name: str):
    def create(given: object, options: object) -> ProcessGroupHCCL:
        if options is None:
            options = ProcessGroupHCCL.Options(backend=name)
        if not isinstance(options, ProcessGroupHCCL.Options):
            raise TypeError(
                f"{name}: pg_options must be torch_npu.distributed.ProcessGroupHCCL.Options, "
                f"not {type(options).__name__}."
            )
        options._timeout = given.timeout
        seconds = _exec_timeout()
        if seconds is not None and given.timeout == c10d.default_pg_timeout:
            options._timeout = timedelta(seconds=seconds)
        options.global_ranks_in_group = given.global_ranks_in_group
        options.group_name = given.group_id
        # Ranks that have no device fail here and not in their first collective.
        torch.npu.current_device()
        return ProcessGroupHCCL(given.store, given.group_rank, given.group_size, options)

    return create


def register() -> None:
    """Once, when torch_npu is imported."""
    _C._set_gloo_factory(_make_gloo)
    for name in ("hccl", "lccl"):
        if name not in dist.Backend.backend_list:
            dist.Backend.register_backend(name, _create(name), extended_api=True, devices=["npu"])
    c10d.Backend.default_device_backend_map["npu"] = "hccl"
    # Groups of "gloo" under a default group that is bound to an npu.
    gloo = c10d.Backend.backend_capability["gloo"]
    if "npu" not in gloo:
        gloo.append("npu")
    dist.is_hccl_available = is_hccl_available
    c10d.is_hccl_available = is_hccl_available
    from torch_npu.distributed import _groups

    _groups.install()
