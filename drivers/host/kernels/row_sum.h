// SPDX-License-Identifier: Apache-2.0
// What kind reduce makes of a row, taken in pieces: programs give the row block
// by block and have the bits of a call that has all of it.
#pragma once

#include <cstdint>
#include <type_traits>

namespace npu::host {

// Sum of f(x), in four parts so that the adders stay busy: element i belongs to
// part i mod 4, but what is left over at the end of the row to part 0.
template <class W>
class RowSum {
 public:
  static constexpr int kLanes = 4;

  // Elements [first, first + count) of a row of n.
  template <class T, class Function>
  void add(
      const T* x,
      std::int64_t first,
      std::int64_t count,
      std::int64_t n,
      Function f) {
    const std::int64_t whole = n / kLanes * kLanes;
    std::int64_t i = 0;
    for (; i < count && (first + i) % kLanes != 0; ++i) {
      lanes_[first + i < whole ? (first + i) % kLanes : 0] +=
          static_cast<Sum>(f(x[i]));
    }
    for (; i + kLanes <= count; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        lanes_[k] += static_cast<Sum>(f(x[i + k]));
      }
    }
    for (; i < count; ++i) {
      lanes_[first + i < whole ? (first + i) % kLanes : 0] +=
          static_cast<Sum>(f(x[i]));
    }
  }
  W total() const {
    Sum all = lanes_[0];
    for (int k = 1; k < kLanes; ++k) {
      all += lanes_[k];
    }
    return static_cast<W>(all);
  }

 private:
  // Integers wrap.
  using Sum =
      std::conditional_t<std::is_same_v<W, std::int64_t>, std::uint64_t, W>;
  Sum lanes_[kLanes] = {};
};

// The row's extreme, NaN wins: the one before with one more element.
template <bool Greatest, class T>
T extreme_of(T best, T x) {
  if (best != best) {
    return best;
  }
  return (Greatest ? x > best : x < best) || x != x ? x : best;
}

}  // namespace npu::host
