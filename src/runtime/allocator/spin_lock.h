// SPDX-License-Identifier: Apache-2.0
// A lock for a few dozen instructions; never held across a driver call.
#pragma once

#include <atomic>
#include <thread>

namespace npu::memory {

class SpinLock {
 public:
  void lock() noexcept {
    if (!held_.exchange(true, std::memory_order_acquire)) {
      return;
    }
    int spins = 0;
    do {
      // The holder may have lost its core: let it run.
      if (++spins > 64) {
        std::this_thread::yield();
      }
    } while (held_.load(std::memory_order_relaxed) ||
             held_.exchange(true, std::memory_order_acquire));
  }
  void unlock() noexcept {
    held_.store(false, std::memory_order_release);
  }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace npu::memory
