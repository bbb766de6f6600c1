// SPDX-License-Identifier: Apache-2.0
// The allocator's backend on the active driver.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "runtime/allocator/backend.h"
#include "runtime/device.h"

namespace npu::memory {

class DriverBackend final : public Backend {
 public:
  npu_status alloc(int device, std::size_t bytes, void** out) override;
  npu_status free(int device, void* ptr) override;
  npu_status synchronize(int device) override;
  npu_status memory_info(
      int device, std::uint64_t* free, std::uint64_t* total) override;
  void trim(int device) noexcept override;
  bool discards() const noexcept override;
  npu_status discard(StreamKey stream, void* ptr, std::size_t bytes) override;
  npu_status record(StreamKey stream, npu_event* out) override;
  npu_status query(npu_event event) override;
  npu_status synchronize(npu_event event) override;
  void release(StreamKey stream, npu_event event) noexcept override;
  [[noreturn]] void fail(npu_status status, const char* what) override;

 private:
  // Events are kept for reuse, by the device they were made for.
  std::mutex mutex_;
  std::array<std::vector<npu_event>, kMaxDevices> events_;
};

}  // namespace npu::memory
