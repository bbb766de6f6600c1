# SPDX-License-Identifier: Apache-2.0
"""Collectives of a device for which no backend is registered: through the host's memory, by Gloo.

Every collective is an operator of PyTorch's dispatcher (c10d::allreduce_, from Python, from
DistributedDataParallel's C++ and from functional collectives). For tensors of a plugin's device
(PrivateUse1) these kernels take its place: tensors are copied to the host, the same operator is
called on the copies, and what it wrote is copied back when it is through.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import torch
from torch import distributed as dist

from ditorch import devices
from ditorch.patching import Patches

# Their first argument is what they write.
_WRITING = (
    "_allgather_base_ _reduce_scatter_base_ allgather_ allgather_coalesced_ "
    "allgather_into_tensor_coalesced_ allreduce_ allreduce_coalesced_ alltoall_ alltoall_base_ "
    "broadcast_ gather_ recv_ reduce_ reduce_scatter_ reduce_scatter_tensor_coalesced_ scatter_"
).split()
_READING = ("barrier", "send")


def is_needed() -> bool:
    """Is the target a plugin's, with nothing registered for it?"""
    name = torch._C._get_privateuse1_backend_name()
    return devices.target == name and name not in dist.Backend.default_device_backend_map


def patch(patches: Patches) -> None:
    """To Gloo the device is one of its own."""
    target, served = devices.target, dist.Backend.backend_capability["gloo"]
    served.append(target)
    patches.on_undo(lambda: served.remove(target))
    defaults = dist.Backend.default_device_backend_map
    defaults[target] = "gloo"
    patches.on_undo(lambda: defaults.pop(target, None))

    library = torch.library.Library("c10d", "IMPL")
    patches.on_undo(library._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is what we want
        for name in (*_WRITING, *_READING):
            operator = getattr(torch.ops.c10d, name, None)
            if operator is not None:
                library.impl(name, _staged(name, operator.default), "PrivateUse1")
        library.impl("recv_any_source_", _refused, "PrivateUse1")


def _refused(*_: object) -> None:
    raise RuntimeError(
        f"recv() of {devices.target} tensors: say which rank to receive from (src=); as with NCCL, "
        "nothing is received from just any"
    )


def _staged(name: str, operator: Callable) -> Callable:
    arguments = [argument.name for argument in operator._schema.arguments]
    asks = arguments.index("async_op") if "async_op" in arguments else len(arguments)

    def call(*args):
        written: list[tuple[torch.Tensor, torch.Tensor]] = []
        with torch.no_grad():
            on_host = [_to_host(arg, []) for arg in args[1:]]
            first = _to_host(args[0], written)
            made = operator(first, *on_host)
        has_tensors = isinstance(made, (tuple, list))
        boxed = made[-1] if has_tensors else made
        pending = _Pending(dist.Work.unbox(boxed), written if name in _WRITING else [])
        if len(args) > asks and not args[asks]:
            pending.finish()
        else:
            boxed = pending.as_work().boxed()
        return (args[0], boxed) if has_tensors else boxed

    return call


def _to_host(value: object, pairs: list) -> object:
    """Copies of the device's tensors; (theirs, copy) go to `pairs`."""
    if isinstance(value, (list, tuple)):
        return [_to_host(item, pairs) for item in value]
    if not isinstance(value, torch.Tensor) or value.is_cpu:
        return value
    copy = value.detach().cpu()
    pairs.append((value, copy))
    return copy


class _Pending:
    """A collective under way on copies."""

    def __init__(self, work: dist.Work, written: list) -> None:
        self._work, self._written = work, written

    def finish(self) -> None:
        """Waits, and brings what was written back."""
        self._work.wait()
        with torch.no_grad():
            for tensor, copy in self._written:
                tensor.data.copy_(copy)  # .data: to autograd a collective is no write

    def as_work(self) -> dist.Work:
        """Through when the results are back, by a thread that waits for them: two ranks that send
        to each other first and receive then must not wait in sending."""
        done = torch.futures.Future()

        def wait() -> None:
            try:
                self.finish()
                done.set_result([tensor for tensor, _ in self._written])
            except Exception as error:
                done.set_exception(error)

        threading.Thread(target=wait, daemon=True, name="ditorch collective").start()
        return torch._C._distributed_c10d._create_work_from_future(done)
