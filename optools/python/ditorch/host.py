# SPDX-License-Identifier: Apache-2.0
"""What torch.cuda's names mean where a device has nothing of the kind: for the cpu, all of them.

Streams and events of the cpu keep the order things are called in; its memory is not counted.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from types import SimpleNamespace

import torch


class Stream:
    """The host's one queue: what is called has been done."""

    def __init__(self, device=None, priority=0, **_: object) -> None:
        self.device = torch.device("cpu")
        self.priority = priority
        self.stream_id = self.cuda_stream = 0

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def wait_stream(self, stream) -> None:
        pass

    def wait_event(self, event) -> None:
        event.synchronize()

    def record_event(self, event=None):
        event = event if event is not None else Event()
        event.record(self)
        return event

    def __enter__(self):
        self._before = current_stream()
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._before)


class Event:
    def __init__(self, enable_timing=False, blocking=False, interprocess=False, **_: object):
        self.enable_timing, self._at = enable_timing, None

    def record(self, stream=None) -> None:
        self._at = time.perf_counter()

    def wait(self, stream=None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("both events must be made with enable_timing=True")
        if self._at is None or end._at is None:
            raise ValueError("both events must be recorded before asking for the time between them")
        return (end._at - self._at) * 1e3


_local = threading.local()
_default = Stream()


def current_stream(device=None) -> Stream:
    return getattr(_local, "stream", _default)


def default_stream(device=None) -> Stream:
    return _default


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _local.stream = stream


@contextlib.contextmanager
def stream(stream: Stream | None):
    if stream is None:
        yield
    else:
        with stream:
            yield


class device:
    """`with torch.cuda.device(0):`; the cpu is one device."""

    def __init__(self, device: object) -> None:
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass


# ---- memory ----------------------------------------------------------------------
def mem_get_info(device=None) -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _zero(device=None) -> int:
    return 0


memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = _zero
memory_cached = max_memory_cached = _zero


def _nothing(*_: object, **__: object) -> None:
    pass


empty_cache = reset_peak_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = (
    _nothing
)
reset_accumulated_memory_stats = set_per_process_memory_fraction = ipc_collect = _nothing
init = _lazy_init = synchronize = set_device = set_sync_debug_mode = _nothing


def memory_stats(device=None) -> dict:
    return {}


def memory_summary(device=None, abbreviated=False) -> str:
    return "memory of this device is not counted"


def memory_snapshot(*_: object) -> list:
    return []


# ---- the runtime -----------------------------------------------------------------
class _Runtime:
    """What scripts call of CUDA's runtime library; each function answers 0, for success. CUDA has
    no profiler here, so the calls that begin and end profiling do nothing."""

    class cudaError:
        success = 0

        def __new__(cls, code: int = 0) -> int:
            return int(code)

    cudaProfilerStart = cudaProfilerStop = staticmethod(lambda: 0)
    cudaHostRegister = cudaHostUnregister = staticmethod(lambda *_: 0)

    @staticmethod
    def cudaGetErrorString(code: int) -> str:
        return "no error" if int(code) == 0 else f"error {int(code)}"

    @staticmethod
    def cudaMemGetInfo(device: int = 0) -> tuple[int, int]:
        return torch.cuda.mem_get_info(device)

    @staticmethod
    def cudaDeviceSynchronize() -> int:
        torch.cuda.synchronize()
        return 0


def cudart() -> type[_Runtime]:
    return _Runtime


# ---- random numbers --------------------------------------------------------------
# Not torch.manual_seed and its kin: they call torch.cuda's, which are these.
def manual_seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def seed() -> int:
    return torch.default_generator.seed()


def initial_seed() -> int:
    return torch.default_generator.initial_seed()


def get_rng_state(device="cuda") -> torch.Tensor:
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device="cuda") -> None:
    torch.default_generator.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(new_states) -> None:
    for state in new_states:
        set_rng_state(state)


manual_seed_all, seed_all = manual_seed, seed


# ---- questions -------------------------------------------------------------------
def is_available() -> bool:
    return True


is_initialized = is_available


def is_bf16_supported(including_emulation=True) -> bool:
    return True


def _no(*_: object) -> bool:
    return False


_is_in_bad_fork = is_current_stream_capturing = can_device_access_peer = _no


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def get_device_name(device=None) -> str:
    return "cpu"


def get_device_capability(device=None) -> tuple[int, int]:
    """What scripts compare with before they use bfloat16: ditorch has always said this."""
    return 8, 0


def get_arch_list() -> list[str]:
    return []


def get_device_properties(device=None) -> SimpleNamespace:
    major, minor = get_device_capability()
    return SimpleNamespace(
        name=get_device_name(),
        gcnArchName=get_device_name(),  # Inductor names its cache by it
        warp_size=1,
        max_threads_per_multi_processor=1,
        total_memory=mem_get_info()[1],
        major=major,
        minor=minor,
        multi_processor_count=os.cpu_count() or 1,
        is_integrated=1,
        is_multi_gpu_board=0,
    )
