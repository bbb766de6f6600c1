// SPDX-License-Identifier: Apache-2.0
// PyTorch's CPU allocator, wrapped: while a rung 4 call is active on
// this thread, CPU kernels get their memory from the device's own pool.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace npu::ladder {

// Replaces PyTorch's CPU allocator; idempotent, never undone.
void install_shim();

// CPU allocations of this thread come from the device's pool. Scopes nest.
class ShimScope {
 public:
  // `device` -1: closes it, PyTorch's own memory is used.
  // `opens`: device memory must be opened before host code touches it.
  ShimScope(c10::DeviceIndex device, bool opens) noexcept;
  ~ShimScope();
  ShimScope(const ShimScope&) = delete;
  ShimScope& operator=(const ShimScope&) = delete;

 private:
  c10::DeviceIndex device_;
  bool opens_;
};

// True when `ptr` owns a block of the pool that a ShimScope handed out.
bool is_pool_block(const c10::DataPtr& ptr) noexcept;
// Makes such a block plain device memory: closed to host code, tagged npu,
// freed by the allocator.
void hand_over(c10::DataPtr& ptr, c10::Device device);

// Opens [ptr, ptr + bytes) to host code, and closes it again.
void open_range(void* ptr, std::uint64_t bytes);
void close_range(void* ptr, std::uint64_t bytes) noexcept;

}  // namespace npu::ladder
