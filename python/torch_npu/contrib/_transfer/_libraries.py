# SPDX-License-Identifier: Apache-2.0
"""Parts of PyTorch around the device: distributed, profiler."""

import functools

import torch


def patch() -> None:
    _patch_distributed()
    _patch_profiler()


def _patch_distributed() -> None:
    if not torch.distributed.is_available():
        return
    dist = torch.distributed

    def by_backend(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            args = tuple(_to_hccl(a) for a in args)
            if "backend" in kwargs:
                kwargs["backend"] = _to_hccl(kwargs["backend"])
            return original(*args, **kwargs)

        return call

    for name in ("init_process_group", "new_group"):
        patched = by_backend(getattr(dist, name))
        setattr(dist, name, patched)
        setattr(dist.distributed_c10d, name, patched)
    dist.is_nccl_available = lambda: hasattr(dist.Backend, "HCCL")


def _to_hccl(backend):
    """nccl as hccl, also inside "cpu:gloo,cuda:nccl"."""
    if not isinstance(backend, str) or "://" in backend:
        return backend
    return backend.replace("nccl", "hccl").replace("cuda:", "npu:")


def _patch_profiler() -> None:
    activity = torch.profiler.ProfilerActivity
    activity.CUDA = activity.PrivateUse1
