// SPDX-License-Identifier: Apache-2.0
// The allocator's counters per device: torch.cuda's memory_stats.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace npu::memory {

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;

  void increase(std::int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    allocated += amount;
  }
  void decrease(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void reset_accumulated() {
    allocated = 0;
    freed = 0;
  }
  void reset_peak() {
    peak = current;
  }
};

// Index 0 is all, 1 the small pool, 2 the large pool.
inline constexpr std::size_t kStatPools = 3;
using StatArray = std::array<Stat, kStatPools>;

struct DeviceStats {
  StatArray allocation;      // blocks handed out
  StatArray segment;         // pieces of driver memory
  StatArray active;          // handed out, or waiting for a stream
  StatArray inactive_split;  // free, but part of a segment in use
  StatArray allocated_bytes;
  StatArray reserved_bytes;
  StatArray active_bytes;
  StatArray inactive_split_bytes;
  StatArray requested_bytes;  // before rounding
  Stat oversize_allocations;  // at least max_split_size
  Stat oversize_segments;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_oom_rejections = 0;  // always 0: nothing is refused early
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t max_split_size = -1;  // -1: every block may be split

  template <typename Fn>
  void each(Fn fn) {
    for (StatArray* array :
         {&allocation,
          &segment,
          &active,
          &inactive_split,
          &allocated_bytes,
          &reserved_bytes,
          &active_bytes,
          &inactive_split_bytes,
          &requested_bytes}) {
      for (Stat& stat : *array) {
        fn(stat);
      }
    }
    fn(oversize_allocations);
    fn(oversize_segments);
  }
  void reset_accumulated() {
    each([](Stat& stat) { stat.reset_accumulated(); });
    num_alloc_retries = 0;
    num_ooms = 0;
    num_sync_all_streams = 0;
    num_device_alloc = 0;
    num_device_free = 0;
  }
  void reset_peak() {
    each([](Stat& stat) { stat.reset_peak(); });
  }
};

inline void increase(StatArray& array, bool small, std::int64_t amount) {
  array[0].increase(amount);
  array[small ? 1 : 2].increase(amount);
}
inline void decrease(StatArray& array, bool small, std::int64_t amount) {
  array[0].decrease(amount);
  array[small ? 1 : 2].decrease(amount);
}

}  // namespace npu::memory
