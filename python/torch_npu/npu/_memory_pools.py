# SPDX-License-Identifier: Apache-2.0
"""Memory kept apart from the common cache, and memory from functions of the user's own."""

import contextlib
import ctypes
import weakref
from typing import Any

from torch_npu import _C

from ._device import _lazy_init
from ._utils import Device, _checked_index

_backend = "native"


class _UserAllocator:
    """What `allocator()` gives: MemPool and change_current_allocator take it."""

    def __init__(self, allocator):
        self._allocator = allocator

    def allocator(self):
        return self._allocator


class NPUPluggableAllocator(_UserAllocator):
    """Two C functions of a shared library that give and take device memory.

    `void* alloc(ssize_t size, int device, void* stream)` and
    `void free(void* ptr, ssize_t size, int device, void* stream)`; the memory has to be what the
    driver of that device can use.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str):
        library = ctypes.CDLL(path_to_so_file)
        addresses = []
        for name in (alloc_fn_name, free_fn_name):
            function = getattr(library, name, None)
            if function is None:
                raise RuntimeError(
                    f"NPUPluggableAllocator: {path_to_so_file} has no function {name}. "
                    'Declare it extern "C" and export it.'
                )
            addresses.append(ctypes.cast(function, ctypes.c_void_p).value)
        self._library = library
        super().__init__(_C._npu_customAllocator(*addresses))


def change_current_allocator(allocator: _UserAllocator) -> None:
    """Every block from these functions, uncached; before the first npu tensor."""
    global _backend
    if not isinstance(allocator, _UserAllocator):
        raise TypeError(
            f"change_current_allocator: expected an NPUPluggableAllocator, but got {allocator!r}"
        )
    _C._npu_changeCurrentAllocator(allocator.allocator())
    _backend = "pluggable"


def get_allocator_backend() -> str:
    """The plugin's own ("native"), or "pluggable" after change_current_allocator."""
    return _backend


class MemPool:
    """Memory of its own: tensors made inside use_mem_pool(pool) lie there and nowhere else.

    Freed blocks are used again by the pool alone. The memory goes back to the driver when the last
    reference to the pool is gone, of live tensors when they are freed and the cache is emptied.
    `allocator` is where its memory comes from (NPUPluggableAllocator.allocator()), `use_on_oom`
    lends idle blocks to others that would run out, `no_split` gives each tensor memory of its own.
    """

    def __init__(self, allocator=None, use_on_oom: bool = False, no_split: bool = False):
        _lazy_init()
        if isinstance(allocator, _UserAllocator):
            allocator = allocator.allocator()
        self._allocator = allocator
        self._device = _C._get_device()
        self._id = _C._make_pool(self._device, allocator, use_on_oom, no_split)
        release = weakref.finalize(self, _C._release_pool, self._device, self._id)
        release.atexit = False  # the process gives its memory back as a whole

    @property
    def id(self) -> tuple[int, int]:
        return self._id

    @property
    def allocator(self):
        return self._allocator

    def use_count(self) -> int:
        """This object and the `with` blocks that use it."""
        return _C._pool_holders(self._device, self._id)

    def snapshot(self) -> list[dict[str, Any]]:
        """The segments of this pool, as torch.npu.memory_snapshot() shows them."""
        segments = _C._memory_snapshot()["segments"]
        return [s for s in segments if tuple(s["segment_pool_id"]) == self._id]


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None):
    """Tensors this thread makes on the device, inside, get their memory from `pool`."""
    _lazy_init()
    index = _checked_index(device)
    _C._begin_pool(index, pool.id)
    try:
        yield
    finally:
        _C._end_pool(index, pool.id)
