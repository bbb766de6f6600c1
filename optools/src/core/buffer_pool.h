// SPDX-License-Identifier: Apache-2.0
// Memory that goes from one thread to another and comes back: fresh pages cost
// more than the copying they are for.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace optools {

class BufferPool {
 public:
  using Buffer = std::unique_ptr<char[]>;

  // At least `bytes`, contents undefined.
  Buffer take(size_t bytes) {
    if (bytes > kSmallest && bytes <= kLargest) {
      const std::lock_guard lock(mutex_);
      auto& free = free_[size_class(bytes)];
      if (!free.empty()) {
        Buffer buffer = std::move(free.back());
        free.pop_back();
        kept_ -= std::bit_ceil(bytes);
        return buffer;
      }
    }
    return Buffer(new char[bytes > kSmallest ? std::bit_ceil(bytes) : bytes]);
  }

  // Of a buffer taken for `bytes`.
  void give_back(Buffer buffer, size_t bytes) {
    if (buffer != nullptr && bytes > kSmallest && bytes <= kLargest) {
      const std::lock_guard lock(mutex_);
      if (kept_ + std::bit_ceil(bytes) <= kMost) {
        kept_ += std::bit_ceil(bytes);
        free_[size_class(bytes)].push_back(std::move(buffer));
      }
    }
  }

 private:
  static constexpr size_t kSmallest = 4096;
  static constexpr size_t kLargest = size_t{64} << 20;
  static constexpr size_t kMost = size_t{256} << 20;  // as much as waits
  static size_t size_class(size_t bytes) {
    return static_cast<size_t>(std::countr_zero(std::bit_ceil(bytes)));
  }

  std::mutex mutex_;
  std::array<std::vector<Buffer>, 32> free_;
  size_t kept_ = 0;
};

}  // namespace optools
