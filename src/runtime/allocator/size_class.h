// SPDX-License-Identifier: Apache-2.0
// Sizes of blocks and segments: the units everything in this folder counts in.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace npu::memory {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

// Every block is a multiple of this.
inline constexpr std::size_t kUnit = 512;
inline constexpr int kUnitShift = 9;
// Blocks up to kSmallLimit live in segments of kSmallSegment.
inline constexpr std::size_t kSmallLimit = kMiB;
inline constexpr std::size_t kSmallSegment = 2 * kMiB;
// Larger ones share segments of kLargeSegment, until they reach kOwnSegment:
// those get a segment of their own, a multiple of kSegmentRound.
inline constexpr std::size_t kLargeSegment = 20 * kMiB;
inline constexpr std::size_t kOwnSegment = 10 * kMiB;
inline constexpr std::size_t kSegmentRound = 2 * kMiB;
// Requests from here on are mistakes, not wishes.
inline constexpr std::size_t kAbsurd = std::size_t{1} << 60;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

constexpr bool is_small(std::size_t rounded) {
  return rounded <= kSmallLimit;
}

// Classes of the free index: 16 per power of two, exact below 16 units.
inline constexpr int kSubBits = 4;
inline constexpr int kSubCount = 1 << kSubBits;
inline constexpr int kLevels = 48;

struct SizeClass {
  int level;
  int sub;
};

constexpr SizeClass size_class(std::size_t bytes) {
  const std::uint64_t units = bytes >> kUnitShift;
  if (units < kSubCount) {
    return {0, static_cast<int>(units)};
  }
  const int log = 63 - std::countl_zero(units);
  return {
      log - kSubBits + 1,
      static_cast<int>(units >> (log - kSubBits)) & (kSubCount - 1)};
}

}  // namespace npu::memory
