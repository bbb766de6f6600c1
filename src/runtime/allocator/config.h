// SPDX-License-Identifier: Apache-2.0
// The options of PYTORCH_NPU_ALLOC_CONF, parsed and checked.
//
// With an effect here:
//   max_split_size_mb, max_non_split_rounding_mb, garbage_collection_threshold,
//   roundup_power2_divisions, large_segment_size_mb,
//   per_process_memory_fraction
// Checked, then without effect, because what they tune is not there or always
// on: expandable_segments, base_addr_aligned_kb, page_size, segment_size_mb,
// multi_stream_lazy_reclaim, release_lock_on_npumalloc, throw_on_npumalloc_oom,
// pinned_use_background_threads, pin_memory_expandable_segments,
// pinned_mem_register, pinned_reserve_segment_size_mb,
// pinned_max_round_threshold_mb, pinned_max_cached_size_mb
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/allocator/size_class.h"

namespace npu::memory {

inline constexpr std::size_t kUnlimited =
    std::numeric_limits<std::size_t>::max();

struct Config {
  bool caching = true;  // PYTORCH_NO_NPU_MEMORY_CACHING=1 turns it off
  std::size_t max_split_size = kUnlimited;
  std::size_t max_non_split_rounding = kLargeSegment;
  std::size_t large_segment = kLargeSegment;
  double garbage_collection_threshold = 0;  // 0: never
  double memory_fraction = 1;
  // Parts a power of two is divided in when rounding up; entry i is for sizes
  // from 2^i MiB on, the first also for smaller ones, the last for all above.
  // 0 and 1 mean plain rounding.
  static constexpr std::size_t kIntervals = 17;  // 1 MiB .. 64 GiB
  std::array<std::size_t, kIntervals> roundup_divisions{};
  bool roundup = false;  // any of them set

  // Bytes a request takes: a multiple of kUnit, at least as many.
  std::size_t rounded(std::size_t bytes) const {
    const std::size_t plain = (bytes + kUnit - 1) & ~(kUnit - 1);
    return roundup ? rounded_power2(plain) : plain;
  }
  // Bytes of the segment that is taken for a block of `rounded` bytes.
  std::size_t segment_bytes(std::size_t rounded) const;

  bool operator==(const Config&) const = default;

 private:
  std::size_t rounded_power2(std::size_t plain) const;
};

// Applies "key:value,key:[a:b,c:d]" on top of `config`. `source` is the name
// errors give: the variable, or the function. Throws Error (NPU_E_INVALID).
void parse_config(std::string_view text, std::string_view source, Config& out);

// Names of all options, for PyTorch's own check of PYTORCH_ALLOC_CONF.
std::vector<std::string> config_keys();

}  // namespace npu::memory
