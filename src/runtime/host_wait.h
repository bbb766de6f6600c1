// SPDX-License-Identifier: Apache-2.0
// The times when host code waits for a device, shown to a listener while there
// is one.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <cstdint>

namespace npu {

enum class WaitFor : std::uint8_t { kDevice, kStream, kEvent };

// Called on the thread that waited, after the wait. It lives as long as the
// process: a thread may be inside when it is taken away.
using HostWaitFn = void (*)(
    WaitFor what, c10::DeviceIndex device, c10::approx_time_t begin) noexcept;
inline std::atomic<HostWaitFn> host_wait_listener{nullptr};

// Around one wait. Without a listener it costs one relaxed load.
class HostWait {
 public:
  HostWait(WaitFor what, c10::DeviceIndex device) noexcept
      : listener_(host_wait_listener.load(std::memory_order_relaxed)),
        what_(what),
        device_(device) {
    if (listener_ != nullptr) {
      begin_ = c10::getApproximateTime();
    }
  }
  ~HostWait() {
    if (listener_ != nullptr) {
      listener_(what_, device_, begin_);
    }
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;
  HostWait(HostWait&&) = delete;
  HostWait& operator=(HostWait&&) = delete;

 private:
  const HostWaitFn listener_;
  const WaitFor what_;
  const c10::DeviceIndex device_;
  c10::approx_time_t begin_ = 0;
};

}  // namespace npu
