// SPDX-License-Identifier: Apache-2.0
// What torch.npu.MemPool and NPUPluggableAllocator stand on.
//
// Functions throw c10 errors or npu::Error and may be called from any thread;
// `device` is an index, -1 the current device.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>

#include "runtime/allocator/pool.h"

namespace npu::memory {

// A pool of that device, held once by the caller; ids are never used twice.
PoolId make_pool(c10::DeviceIndex device, const PoolOptions& options);
// Nothing happens in a forked child.
void release_pool(c10::DeviceIndex device, PoolId id);
// MemPool objects and `with` blocks that hold it.
std::size_t pool_holders(c10::DeviceIndex device, PoolId id);
// This thread's allocations on the device come from the pool until the end.
void begin_route(c10::DeviceIndex device, PoolId id);
void end_route(c10::DeviceIndex device, PoolId id);
// Its idle segments on every device go back.
void empty_pool(PoolId id);

// Functions of a user's library; the stream is the driver's handle.
using AllocFn = void* (*)(std::size_t bytes, int device, void* stream);
using FreeFn = void (*)(void* ptr, std::size_t bytes, int device, void* stream);
// Never destroyed: blocks may be freed until the process ends.
SegmentSource* make_source(AllocFn alloc, FreeFn free);
// RuntimeError once anything was allocated.
void use_source(SegmentSource* source);

}  // namespace npu::memory
