// SPDX-License-Identifier: Apache-2.0
// The bytes that an operator reads or writes, and whether two of them meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace npu::sanitizer {

// Runs of bytes at regular distances: what a strided tensor covers. Dimensions
// that only repeat bytes (stride 0) or continue a run are folded away, so a
// contiguous tensor is one run.
class Region {
 public:
  Region() = default;
  // [data, data + bytes).
  Region(const void* data, std::size_t bytes);
  // Strides in elements, none of them negative.
  Region(
      const void* data,
      std::size_t item_bytes,
      std::span<const std::int64_t> sizes,
      std::span<const std::int64_t> strides);

  bool empty() const noexcept {
    return begin_ == end_;
  }
  std::uintptr_t begin() const noexcept {
    return begin_;
  }
  // After the last byte.
  std::uintptr_t end() const noexcept {
    return end_;
  }
  bool is_one_run() const noexcept {
    return dims_.empty();
  }

  // Whether any byte is in both. Exact, unless the two need more than
  // kMostSteps comparisons: then it answers whether their spans meet.
  bool meets(const Region& other) const;
  // Every byte of `other` is in this one; false where that is hard to say.
  bool covers(const Region& other) const;

  static constexpr int kMostSteps = 1 << 16;

 private:
  struct Dim {
    std::int64_t size;
    std::int64_t stride;  // in bytes
    std::int64_t extent;  // bytes that one step of it spans
    bool operator==(const Dim&) const = default;
  };
  static bool meet(
      std::uintptr_t a,
      std::span<const Dim> a_dims,
      std::uintptr_t b,
      std::span<const Dim> b_dims,
      const Region& first,
      const Region& second,
      int& steps);
  // Of what is left at some depth.
  static std::int64_t span_of(std::span<const Dim> dims, std::int64_t run);

  std::uintptr_t begin_ = 0;
  std::uintptr_t end_ = 0;
  std::int64_t run_ = 0;   // bytes side by side
  std::vector<Dim> dims_;  // the largest stride first
};

}  // namespace npu::sanitizer
