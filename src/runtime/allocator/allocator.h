// SPDX-License-Identifier: Apache-2.0
// Device memory, cached: what the rest of the plugin sees of the allocator.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace npu {

// Registered for PrivateUse1, so torch.accelerator.memory_* works through it.
c10::DeviceAllocator* device_allocator() noexcept;

// An allocator whose memory is `device`'s, whichever device is current: for
// storages that allocate for themselves later (lazy clones).
c10::Allocator* allocator_of(c10::DeviceIndex device) noexcept;

// A block on `device` for work on its current stream; tagged npu.
c10::DataPtr allocate(std::size_t bytes, c10::DeviceIndex device);

// The same block without an owner. Freed with block_deleter(), also when the
// DataPtr that holds it is tagged CPU (rung 4).
void* allocate_raw(std::size_t bytes, c10::DeviceIndex device);
c10::DeleterFnPtr block_deleter() noexcept;

// The device whose pool `ptr` (also interior) lies in, or -1. Cheap.
c10::DeviceIndex device_of_pointer(const void* ptr) noexcept;

void record_stream(const c10::DataPtr& ptr, c10::Stream stream);

}  // namespace npu
