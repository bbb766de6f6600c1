# SPDX-License-Identifier: Apache-2.0
"""Tests over several devices and processes."""

import functools
import unittest
from collections import namedtuple
from collections.abc import Callable

import torch
import torch.distributed as dist

TestSkip = namedtuple("TestSkip", "exit_code, message")
TestSkip.__test__ = False  # pytest: no test class


def skipIfUnsupportMultiNPU(npu_number_needed: int) -> Callable:
    """Runs a test only with that many devices."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def gated(*args, **kwargs):
            found = torch.npu.device_count()
            if found < npu_number_needed:
                raise unittest.SkipTest(f"needs {npu_number_needed} npu devices, found {found}")
            return function(*args, **kwargs)

        return gated

    return decorate


def init_pg(backend: str = "hccl", world_size=1, rank=0, file_name="file://") -> None:
    """Joins the process group of a test; one device per rank."""
    if backend == "hccl":
        torch.npu.set_device(rank % torch.npu.device_count())
    dist.init_process_group(backend, world_size=world_size, rank=rank, init_method=file_name)


def with_comms(func: Callable) -> Callable:
    """Runs a multi-process test method between joining its process group and leaving it."""

    @functools.wraps(func)
    def wrapped(self, *args, **kwargs):
        init_pg("hccl", self.world_size, self.rank, f"file://{self.file_name}")
        try:
            return func(self, *args, **kwargs)
        finally:
            dist.destroy_process_group()

    return wrapped
