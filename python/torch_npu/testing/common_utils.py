# SPDX-License-Identifier: Apache-2.0
"""Pairs of equal tensors on CPU and npu, gates on the device, and small tools of tests."""

import contextlib
import functools
import itertools
import json
import os
import unittest
from collections.abc import Callable, Iterable

import numpy as np
import torch

import torch_npu
from torch_npu.npu import get_device_name
from torch_npu.utils import get_cann_version

PERF_TEST_ENABLE = os.environ.get("PERF_TEST_ENABLE") == "1"
PERF_BASELINE_FILE = os.environ.get("PERF_BASELINE_FILE", "")


def get_npu_device() -> str:
    """The device tests run on: SET_NPU_DEVICE ("npu:1" or "1"), else npu:0."""
    wanted = os.environ.get("SET_NPU_DEVICE") or "npu:0"
    return f"npu:{wanted}" if wanted.isdigit() else wanted


def set_npu_device() -> None:
    torch.npu.set_device(get_npu_device())


def _on_npu(cpu: torch.Tensor, npu_format: int, device) -> torch.Tensor:
    npu = cpu.to(device or get_npu_device())
    return npu if npu_format == -1 else torch_npu.npu_format_cast(npu, npu_format)


def create_common_tensor(item, minValue, maxValue, device=None):
    """The same random values on CPU and npu.

    `item` is [numpy dtype, format, shape], and whatever else a test keeps with
    them; format -1 leaves the npu tensor as it is made.
    """
    dtype, npu_format, shape = item[:3]
    values = np.random.uniform(minValue, maxValue, shape)
    if isinstance(dtype, torch.dtype):
        cpu = torch.from_numpy(np.asarray(values)).to(dtype)
    else:
        cpu = torch.from_numpy(np.asarray(values).astype(dtype))
    return cpu, _on_npu(cpu, npu_format, device)


def create_dtype_tensor(
    shape, dtype, npu_format=-1, min_value=-5, max_value=5, no_zero=False, device=None
):
    """Like create_common_tensor, from a torch dtype; `no_zero` for divisors."""
    if dtype == torch.bool:
        cpu = torch.from_numpy(np.random.randint(0, 2, shape).astype(bool).reshape(shape))
    elif dtype.is_floating_point or dtype.is_complex:
        cpu = torch.from_numpy(np.asarray(np.random.uniform(min_value, max_value, shape))).to(dtype)
    else:
        cpu = torch.from_numpy(np.asarray(np.random.randint(min_value, max_value + 1, shape)))
        cpu = cpu.to(dtype)
    if no_zero:
        cpu[cpu == 0] = 1
    return cpu, _on_npu(cpu, npu_format, device)


def is_iterable(obj) -> bool:
    try:
        iter(obj)
    except TypeError:
        return False
    return True


def iter_indices(tensor: torch.Tensor) -> Iterable:
    """The index of every element; plain numbers for a tensor of one dimension."""
    if tensor.dim() == 1:
        return range(tensor.size(0))
    return itertools.product(*(range(size) for size in tensor.size()))


@contextlib.contextmanager
def freeze_rng_state():
    """Restores the generators of CPU and npu at the end."""
    cpu_state = torch.get_rng_state()
    npu_state = torch.npu.get_rng_state() if torch.npu.is_initialized() else None
    try:
        yield
    finally:
        if npu_state is not None:
            torch.npu.set_rng_state(npu_state)
        torch.set_rng_state(cpu_state)


def get_cycles_per_ms() -> float:
    """How many units of torch.npu._sleep make a millisecond: they are nanoseconds."""
    return 1e6


def check_operators_in_prof(expected_operators, prof, unexpected_operators=None) -> bool:
    """Whether a profile holds every expected name, and none of the unexpected ones."""
    events = getattr(prof, "function_events", None) or prof.events()
    names = {event.name for event in events}
    missing = [name for name in expected_operators if name not in names]
    present = [name for name in unexpected_operators or () if name in names]
    if missing:
        print(f"not in the profile: {missing}")
    if present:
        print(f"in the profile, but should not: {present}")
    return not missing and not present


def _short_name(name: str) -> str:
    """The part of a device name that test gates list."""
    length = 12 if name.startswith("Ascend910_") else 9 if name.startswith("Ascend950") else 10
    return name[:length]


class _Gate:
    """A decorator that skips a test unless `reason()` is empty; decided when the test runs."""

    def reason(self) -> str:
        raise NotImplementedError

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def gated(*args, **kwargs):
            reason = self.reason()
            if reason:
                raise unittest.SkipTest(reason)
            return function(*args, **kwargs)

        return gated


class SupportedDevices(_Gate):
    """Runs a test only on devices of these names, like "Ascend910B" or "Ascend910_93"."""

    def __init__(self, supported_devices: list[str]) -> None:
        self.supported_devices = supported_devices

    def reason(self) -> str:
        name = get_device_name(0)
        if _short_name(name) in self.supported_devices:
            return ""
        return f"needs one of {self.supported_devices}, the device is {name}"


class SkipIfNotRegistered(_Gate):
    """Runs a test only where PyTorch has the operator, like "aten::add" or "npu::fast_gelu"."""

    def __init__(self, op_type: str, message: str = "") -> None:
        self.op_type = op_type
        self.message = message

    def reason(self) -> str:
        name = self.op_type if "::" in self.op_type else f"aten::{self.op_type}"
        if torch._C._jit_get_schemas_for_operator(name):
            return ""
        return self.message or f"there is no operator {name}"


class SkipIfNoLapack(_Gate):
    """Runs a test only where PyTorch was built with LAPACK. Used bare: @SkipIfNoLapack."""

    def __new__(cls, function: Callable):
        return super().__new__(cls)(function)

    def reason(self) -> str:
        return "" if torch._C.has_lapack else "PyTorch was built without LAPACK"


class SkipIfNotGteCANNVersion(_Gate):
    """Runs a test unless Ascend's toolkit is there and older than `version`."""

    def __init__(self, version: str) -> None:
        self.version = version

    def reason(self) -> str:
        found = get_cann_version()
        if not found or _version(found) >= _version(self.version):
            return ""
        return f"needs CANN {self.version}, found {found}"


def _version(text: str) -> list:
    parts = text.replace("RC", ".-1.").replace("rc", ".-1.").split(".")
    return [int(part) for part in parts if part.lstrip("-").isdigit()]


class Baseline:
    """Times of earlier runs, by name, in a JSON file."""

    def __init__(self, baselineFile: str) -> None:
        self._file = baselineFile
        self._times = {}
        if baselineFile and os.path.exists(baselineFile):
            with open(baselineFile, encoding="utf-8") as file:
                self._times = json.load(file)

    def get_baseline(self, resourceId: str):
        return self._times.get(resourceId)

    def set_baseline(self, resourceId: str, baseline) -> None:
        self._times[resourceId] = baseline

    def save_baseline(self) -> None:
        if self._file:
            with open(self._file, "w", encoding="utf-8") as file:
                json.dump(self._times, file, indent=2)


performanceBaseline = Baseline(PERF_BASELINE_FILE)


def dump_baseline() -> None:
    if PERF_TEST_ENABLE:
        performanceBaseline.save_baseline()
