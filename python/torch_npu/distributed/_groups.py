# SPDX-License-Identifier: Apache-2.0
"""Where torch.distributed knows its own backends only.

Each patch acts on groups with an npu backend; for any other it calls what was there.
"""

from __future__ import annotations

import functools
import importlib
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

_OURS = ("hccl", "lccl")


def install() -> None:
    _name_the_default_backend()
    _set_the_default_type()
    _monitor_barriers()
    _allow_bf16_hooks()
    _separate_attempts()


def _backend_of(group: dist.ProcessGroup) -> object | None:
    """Its npu backend, or nothing."""
    try:
        found = group._get_backend(torch.device("npu"))
    except RuntimeError:
        return None
    found = getattr(found, "wrapped_pg", found)
    return found if found.name() in _OURS else None


def _name_the_default_backend() -> None:
    """Without a name torch picks one by device and takes Gloo for the group's own."""
    original = c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: object, **kwargs: object) -> None:
        if backend is None and torch.npu.is_available():
            backend = "cpu:gloo,npu:hccl"
        return original(backend, *args, **kwargs)

    c10d.init_process_group = dist.init_process_group = init_process_group


def _set_the_default_type() -> None:
    """Of several backends in a group torch looks for its own, or the first plugin's name."""
    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def new_process_group_helper(*args: object, **kwargs: object) -> tuple:
        made = original(*args, **kwargs)
        group = made[0]
        if isinstance(group, dist.ProcessGroup) and _backend_of(group) is not None:
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        return made

    c10d._new_process_group_helper = new_process_group_helper


def _monitor_barriers() -> None:
    """torch has them for Gloo only."""
    original = c10d.monitored_barrier

    @functools.wraps(original)
    def monitored_barrier(
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | None = None,
        wait_all_ranks: bool = False,
    ) -> None:
        known = group or c10d._get_default_group()
        ours = _backend_of(known) if isinstance(known, dist.ProcessGroup) else None
        if ours is None:
            return original(group, timeout, wait_all_ranks)
        return ours.monitored_barrier(timeout or ours.options._timeout, wait_all_ranks)

    c10d.monitored_barrier = dist.monitored_barrier = monitored_barrier


def _allow_bf16_hooks() -> None:
    """DDP's compression to bfloat16 asks for CUDA; npu groups sum it in float32."""
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel._check_comm_hook

    @functools.wraps(original)
    def check_comm_hook(self: DistributedDataParallel, hook: object) -> None:
        if self.device_type == "npu" and getattr(hook, "__name__", "").startswith("bf16_"):
            return
        original(self, hook)

    DistributedDataParallel._check_comm_hook = check_comm_hook


def _separate_attempts() -> None:
    """torchrun keeps its store when it starts workers again: they would find the addresses of those that ended.

    Only where one agent has started all of them: several agents count their attempts differently.
    """
    # The package has a function of this name too.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    original = rendezvous._create_c10d_store

    @functools.wraps(original)
    def create_c10d_store(*args: object, **kwargs: object) -> dist.Store:
        store = original(*args, **kwargs)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        alone = os.environ.get("GROUP_WORLD_SIZE") == "1"
        if attempt == "0" or not alone or not rendezvous._torchelastic_use_agent_store():
            return store
        return dist.PrefixStore(f"attempt_{attempt}", store)

    rendezvous._create_c10d_store = create_c10d_store
