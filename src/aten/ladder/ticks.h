// SPDX-License-Identifier: Apache-2.0
// The cheapest clock there is: a counter of the processor, turned into seconds
// only when it is read.
#pragma once

#include <chrono>
#include <cstdint>

namespace npu::ladder {

inline std::uint64_t read_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Compares the counter with the steady clock since the process loaded us, so
// it gets better with time. Waits a little when asked right after that.
double seconds_per_tick();

}  // namespace npu::ladder
