// SPDX-License-Identifier: Apache-2.0
// The one allocator of the process; never destroyed, because storages are
// freed on any thread until the very end.
#pragma once

#include <c10/core/Device.h>

#include <atomic>

#include "runtime/allocator/caching_allocator.h"

namespace npu::memory {

namespace detail {
inline std::atomic<CachingAllocator*> g_allocator{nullptr};
inline std::atomic<bool> g_abandoned{false};
CachingAllocator& make_allocator();
}  // namespace detail

// Null before the first use.
inline CachingAllocator* global_allocator_or_null() noexcept {
  return detail::g_allocator.load(std::memory_order_acquire);
}
// Made at the first call, which reads the environment: throws ValueError for
// bad options, every time.
inline CachingAllocator& global_allocator() {
  CachingAllocator* found = global_allocator_or_null();
  return found != nullptr ? *found : detail::make_allocator();
}
// In a forked child: its locks may be held by threads that are not there and
// its memory belongs to the parent, so it must not be touched.
inline bool abandoned() noexcept {
  return detail::g_abandoned.load(std::memory_order_relaxed);
}

// The pool of a device, opened and checked.
DevicePool& device_pool(c10::DeviceIndex device);

// Tells observers and the profiler, then throws OutOfMemoryError.
[[noreturn]] void raise_out_of_memory(const class OutOfMemory& error);

}  // namespace npu::memory
