# SPDX-License-Identifier: Apache-2.0
"""`nccl` read as the device's own backend, and averages where that backend has none."""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
from torch import distributed as dist

from ditorch import devices, staging
from ditorch.devices import to_target
from ditorch.patching import Patches


def backend() -> str:
    """What PyTorch uses for the device; Gloo where nothing is registered for it (staging.py)."""
    return dist.Backend.default_device_backend_map.get(devices.target, "gloo")


def to_backend(name: object) -> object:
    """nccl as the device's backend, also inside "cpu:gloo,cuda:nccl"."""
    if not isinstance(name, str):
        return name
    parts = []
    for part in name.split(","):
        device, colon, kind = part.rpartition(":")
        kind = backend() if kind.lower() == "nccl" else kind
        device = devices.target if device == "cuda" else device
        parts.append(device + colon + kind)
    return ",".join(dict.fromkeys(parts))


def _check_backend(function: str, name: object) -> None:
    """PyTorch says of an unknown backend that it is unknown; a script for another chip needs more."""
    for part in name.split(",") if isinstance(name, str) else ():
        kind = part.rpartition(":")[2].lower()
        if kind and kind not in dist.Backend.backend_list:
            raise ValueError(
                f"torch.distributed.{function}(backend={name!r}): there is no such backend here as "
                f"{kind!r}: no such backend was registered for {devices.target}. "
                f'backend="nccl" runs on {backend()}; there are {", ".join(dist.Backend.backend_list)}'
            )


def patch(patches: Patches) -> None:
    if not dist.is_available():
        return

    def by_backend(original: Callable) -> Callable:
        signature = inspect.signature(original)

        def call(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments
            if "backend" in given:
                given["backend"] = to_backend(given["backend"])
                if original.__name__ != "is_backend_available":
                    _check_backend(original.__name__, given["backend"])
            if given.get("device_id") is not None:
                device = to_target(given["device_id"])
                given["device_id"] = None if devices.target == "cpu" else device
            return original(*bound.args, **bound.kwargs)

        return call

    for name in ("init_process_group", "new_group", "is_backend_available"):
        _everywhere(patches, name, by_backend)
    _everywhere(patches, "is_nccl_available", lambda _: lambda: True)
    # Of a tensor that calls its device cuda.
    patches.wrap(
        dist.ProcessGroup,
        "_get_backend",
        lambda original: lambda self, device: original(self, to_target(device)),
    )
    if staging.is_needed():
        staging.patch(patches)
    if backend() != "nccl":
        _averages(patches)
    if devices.target == "cpu":
        _data_parallel(patches)


def _everywhere(patches: Patches, name: str, make: Callable) -> None:
    """dist.x and dist.distributed_c10d.x are one function."""
    if hasattr(dist, name):
        patches.wrap(dist, name, make)
        patches.set(dist.distributed_c10d, name, getattr(dist, name))


class _Average:
    """A pending sum that becomes an average when its completion is seen. Its future is what
    is asked: Gloo's own work may write the sum again whenever it is waited for."""

    def __init__(self, work: object, divide: Callable[[], None]) -> None:
        self._work, self._divide = work, divide
        try:
            self._future = work.get_future().then(self._divided)
        except RuntimeError:  # some of Gloo's have none
            self._future = torch.futures.Future()
            threading.Thread(target=self._follow, daemon=True, name="ditorch average").start()

    def _divided(self, sums: torch.futures.Future) -> object:
        value = sums.value()  # raises what the collective raised
        self._divide()
        return value

    def _follow(self) -> None:
        try:
            self._work.wait()
            self._divide()
            self._future.set_result(None)
        except Exception as error:
            self._future.set_exception(error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        end = time.monotonic() + timeout.total_seconds() if timeout else math.inf
        while not self._future.done() and end < math.inf:  # not every kind of work has a limit
            if time.monotonic() > end:
                raise RuntimeError(f"a collective with ReduceOp.AVG is not through after {timeout}")
            time.sleep(1e-3)
        self._future.wait()
        return True

    def synchronize(self) -> None:
        self._future.wait()

    def is_completed(self) -> bool:
        return self._future.done()

    def get_future(self) -> torch.futures.Future:
        return self._future

    def __getattr__(self, name: str):
        return getattr(self._work, name)


def _averages(patches: Patches) -> None:
    """ReduceOp.AVG: a sum, divided by the number of ranks. Everything else goes by untouched."""

    def averaging(written: Callable) -> Callable:
        def make(original: Callable) -> Callable:
            signature = inspect.signature(original)

            def call(*args, **kwargs):
                bound = signature.bind(*args, **kwargs)
                given = bound.arguments
                if given.get("op") != dist.ReduceOp.AVG:
                    return original(*args, **kwargs)
                given["op"] = dist.ReduceOp.SUM
                group = given.get("group")

                def finish() -> None:
                    tensor = written(given)
                    if tensor is not None:
                        with torch.no_grad():
                            tensor.div_(dist.get_world_size(group))

                work = original(*bound.args, **bound.kwargs)
                if given.get("async_op") and work is not None:
                    return _Average(work, finish)
                finish()
                return work

            return call

        return make

    def at_destination(given: dict):
        group = given.get("group")
        if given.get("group_dst") is not None:
            here = dist.get_rank(group) == given["group_dst"]
        else:
            here = dist.get_rank() == given.get("dst")
        return given["tensor"] if here else None

    _everywhere(patches, "all_reduce", averaging(lambda given: given["tensor"]))
    _everywhere(patches, "reduce", averaging(at_destination))
    for name in ("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"):
        _everywhere(patches, name, averaging(lambda given: given["output"]))


def _data_parallel(patches: Patches) -> None:
    """On the cpu DistributedDataParallel takes no device numbers."""

    def make(original: Callable) -> Callable:
        def call(self, module, device_ids=None, output_device=None, *args, **kwargs):
            return original(self, module, None, None, *args, **kwargs)

        return call

    patches.wrap(torch.nn.parallel.DistributedDataParallel, "__init__", make)
