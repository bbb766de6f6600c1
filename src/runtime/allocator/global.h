// SPDX-License-Identifier: Apache-2.0
// The one allocator of the process; never destroyed, because storages are
// freed on any thread until the very end.
#pragma once

#include <c10/core/Device.h>

#include "runtime/allocator/caching_allocator.h"

namespace npu::memory {

// Made at the first call, which reads the environment: throws ValueError for
// bad options, every time.
CachingAllocator& global_allocator();
// Null before that. Cheap.
CachingAllocator* global_allocator_or_null() noexcept;
// In a forked child: its locks may be held by threads that are not there and
// its memory belongs to the parent, so nothing of it is touched.
bool abandoned() noexcept;

// The pool of a device, opened and checked.
DevicePool& device_pool(c10::DeviceIndex device);

// Tells observers and the profiler, then throws OutOfMemoryError.
[[noreturn]] void raise_out_of_memory(const class OutOfMemory& error);

}  // namespace npu::memory
