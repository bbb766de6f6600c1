// SPDX-License-Identifier: Apache-2.0
// Private pools of the process's allocator, and memory from users' functions.
#include "runtime/allocator/memory_pools.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "driver/registry.h"
#include "runtime/allocator/global.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu::memory {
namespace {

class FunctionSource final : public SegmentSource {
 public:
  FunctionSource(AllocFn alloc_fn, FreeFn free_fn)
      : alloc_(alloc_fn), free_(free_fn) {}

  npu_status alloc(StreamKey stream, std::size_t bytes, void** out) override {
    *out = alloc_(bytes, stream.device, handle(stream));
    if (*out == nullptr) {
      return NPU_E_OUT_OF_MEMORY;
    }
    if (needs_registering(stream)) {
      active_driver().memory().host_register(*out, bytes);
    }
    return NPU_OK;
  }
  npu_status free(StreamKey stream, void* ptr, std::size_t bytes) override {
    if (needs_registering(stream)) {
      active_driver().memory().host_unregister(ptr);
    }
    free_(ptr, bytes, stream.device, handle(stream));
    return NPU_OK;
  }

 private:
  // Where the device's memory is the host's, the driver has to be told of
  // memory that is not its own: it copies no other. Not being able to take it
  // is no error, kernels can use it all the same.
  static bool needs_registering(StreamKey stream) {
    const auto device = static_cast<c10::DeviceIndex>(stream.device);
    return device_properties(device).integrated != 0;
  }
  static void* handle(StreamKey stream) {
    const auto device = static_cast<c10::DeviceIndex>(stream.device);
    return stream_handle(stream_from_id(stream.id, device));
  }

  const AllocFn alloc_;
  const FreeFn free_;
};

DevicePool& pool_of(c10::DeviceIndex device) {
  return device_pool(device_or_current(device));
}

}  // namespace

PoolId make_pool(c10::DeviceIndex device, const PoolOptions& options) {
  static std::atomic<std::uint64_t> next{1};
  const PoolId id{0, next.fetch_add(1)};
  pool_of(device).hold_pool(id, options);
  return id;
}

void release_pool(c10::DeviceIndex device, PoolId id) {
  if (!abandoned()) {
    pool_of(device).release_pool(id);
  }
}

std::size_t pool_holders(c10::DeviceIndex device, PoolId id) {
  return pool_of(device).pool_holders(id);
}

void begin_route(c10::DeviceIndex device, PoolId id) {
  pool_of(device).begin_route(id);
}

void end_route(c10::DeviceIndex device, PoolId id) {
  use_driver([&] { pool_of(device).end_route(id); });
}

void empty_pool(PoolId id) {
  if (abandoned()) {
    init();
  }
  for (int device = 0; device < CachingAllocator::kDevices; ++device) {
    if (DevicePool* pool = global_allocator().existing(device)) {
      pool->empty_pool(id);
    }
  }
}

SegmentSource* make_source(AllocFn alloc, FreeFn free) {
  return new FunctionSource(alloc, free);
}

void use_source(SegmentSource* source) {
  TORCH_CHECK(
      global_allocator().set_source(source),
      "npu: change_current_allocator: Can't swap an already initialized "
      "allocator. Call it before the first npu tensor.",
      pta_error(Code::kNotSupported));
}

}  // namespace npu::memory
