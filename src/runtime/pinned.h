// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, cached; freed blocks wait for the copies that use them.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Stream.h>

namespace npu {

at::HostAllocator* pinned_allocator() noexcept;

// Also for interior pointers; cheap while nothing is pinned.
bool is_pinned(const void* ptr) noexcept;

// Makes memory of the program's own count as pinned: copies may use it until it
// is unregistered, and the program keeps it alive that long. False for no
// memory, memory that is pinned already and, at the second, an address that
// was not registered. For devices whose copies need no pages locked by their
// driver; the caller asks.
bool register_host_memory(void* ptr, std::size_t bytes);
bool unregister_host_memory(void* ptr);

// After queueing a copy that reads or writes `ptr`'s pinned block: it is not
// handed out again before `stream` passes this point. No-op for other memory.
void record_pinned(const void* ptr, void* context, c10::Stream stream);

}  // namespace npu
