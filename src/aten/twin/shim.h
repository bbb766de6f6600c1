// SPDX-License-Identifier: Apache-2.0
// PyTorch's CPU allocator, wrapped: while a rung 4 call is active on
// this thread, CPU kernels get their memory from the device's own pool.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace npu::twin {

// Replaces PyTorch's CPU allocator; idempotent, never undone.
void install_shim();

// Where CPU allocations of a thread come from.
struct ShimState {
  c10::DeviceIndex device = -1;  // its pool; -1: PyTorch's own memory
  // The device's memory must be opened before host code touches it.
  bool opens = false;
};
// Of this thread; returns what it was.
ShimState exchange_shim(ShimState next) noexcept;

// The same for a scope. Scopes nest.
class ShimScope {
 public:
  ShimScope(c10::DeviceIndex device, bool opens) noexcept
      : before_(exchange_shim({device, opens})) {}
  explicit ShimScope(ShimState next) noexcept : before_(exchange_shim(next)) {}
  ~ShimScope() {
    exchange_shim(before_);
  }
  ShimScope(const ShimScope&) = delete;
  ShimScope& operator=(const ShimScope&) = delete;

 private:
  const ShimState before_;
};

// True when `ptr` owns a block of the pool that a ShimScope handed out.
bool is_pool_block(const c10::DataPtr& ptr) noexcept;
// Makes such a block plain device memory: closed to host code, tagged npu,
// freed by the allocator.
void hand_over(c10::DataPtr& ptr, c10::Device device);

// Opens [ptr, ptr + bytes) to host code, and closes it again.
void open_range(void* ptr, std::uint64_t bytes);
void close_range(void* ptr, std::uint64_t bytes) noexcept;

}  // namespace npu::twin
