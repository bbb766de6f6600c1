// SPDX-License-Identifier: Apache-2.0
// Out of memory: the numbers, and the text users know from torch_npu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

namespace npu::memory {

// 1.50 GiB, 20.00 MiB, 512 bytes.
std::string format_bytes(std::uint64_t bytes);

class OutOfMemory : public std::exception {
 public:
  struct Numbers {
    int device = 0;
    std::uint64_t asked = 0;  // rounded
    std::uint64_t capacity = 0;
    std::uint64_t allocated = 0;
    std::uint64_t active = 0;
    std::uint64_t free = 0;
    std::uint64_t reserved = 0;
  };
  explicit OutOfMemory(const Numbers& numbers);
  const char* what() const noexcept override {
    return text_.c_str();
  }
  const Numbers& numbers() const noexcept {
    return numbers_;
  }

 private:
  Numbers numbers_;
  std::string text_;
};

}  // namespace npu::memory
