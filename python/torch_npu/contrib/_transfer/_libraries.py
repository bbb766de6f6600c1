# SPDX-License-Identifier: Apache-2.0
"""Parts of PyTorch around the device: distributed, profiler, building extensions."""

import functools
import os

import torch

import torch_npu

from ._devices import to_npu

_ROOT = os.path.dirname(os.path.abspath(torch_npu.__file__))


def patch() -> None:
    _patch_distributed()
    _patch_profiler()
    _patch_extensions()


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
    cls = torch.autograd.profiler.profile
    init = cls.__init__

    @functools.wraps(init)
    def on_npu(self, *args, use_cuda=False, use_device=None, **kwargs):
        init(self, *args, use_device="npu" if use_cuda else to_npu(use_device), **kwargs)

    cls.__init__ = on_npu
    util = torch.autograd.profiler_util
    real = util.Kernel

    class Kernel(real):  # type: ignore[valid-type, misc]
        """A kernel of a profile; one on "cuda" ran on npu."""

        __slots__ = ()

        def __new__(cls, name, device, duration):
            return super().__new__(cls, name, to_npu(device), duration)

    util.Kernel = Kernel


def _patch_extensions() -> None:
    """Extensions for "cuda" find the headers and libraries of PyTorch and of the plugin."""
    from torch.utils import cpp_extension

    def with_plugin(original, folder: str):
        @functools.wraps(original)
        def paths(device_type: str = "cpu", *args, **kwargs):
            device_type = to_npu(device_type)
            found = original(device_type, *args, **kwargs)
            return [*found, os.path.join(_ROOT, folder)] if device_type == "npu" else found

        return paths

    cpp_extension.include_paths = with_plugin(cpp_extension.include_paths, "include")
    cpp_extension.library_paths = with_plugin(cpp_extension.library_paths, "lib")
