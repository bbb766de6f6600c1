// SPDX-License-Identifier: Apache-2.0
// Waiting for other threads. They may need a lock this thread holds without
// the core's knowledge (Python's): the binding lends a way to wait without it.
#pragma once

#include <atomic>
#include <functional>

namespace optools {

using Waiter = void (*)(const std::function<void()>& wait);
inline std::atomic<Waiter> g_waiter{nullptr};

inline void wait_for_others(const std::function<void()>& wait) {
  if (const Waiter waiter = g_waiter.load(std::memory_order_relaxed)) {
    waiter(wait);
  } else {
    wait();
  }
}

}  // namespace optools
