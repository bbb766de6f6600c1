// SPDX-License-Identifier: Apache-2.0
// Device memory of one operand or workspace, with guards on both sides and what
// was put there.
#pragma once

#include <cstring>

#include "case.h"

namespace npu::kit {

// The address sanitizer has guards of its own, and sees reads too.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kGuard = 0;
#else
inline constexpr std::size_t kGuard = 512;
#endif
inline constexpr std::uint8_t kGuardByte = 0xC3;

class Block {
 public:
  Block(const Machine& machine, npu_stream stream, std::size_t bytes)
      : machine_(machine), stream_(stream), before_(bytes + 2 * kGuard) {
    std::memset(before_.data(), kGuardByte, before_.size());
    const npu_memory_table& memory = *machine_.driver->memory;
    NPU_EXPECT_OK(memory.alloc(machine_.device, before_.size(), &base_));
  }
  ~Block() {
    NPU_EXPECT_OK(machine_.driver->memory->free(machine_.device, base_));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::uint8_t* image() {
    return before_.data() + kGuard;
  }
  void* data() const {
    return static_cast<std::uint8_t*>(base_) + kGuard;
  }
  std::size_t bytes() const {
    return before_.size() - 2 * kGuard;
  }
  void upload() {
    NPU_EXPECT_OK(machine_.driver->memory->copy_to_device(
        stream_, base_, before_.data(), before_.size()));
  }
  void download() {
    after_.resize(before_.size());
    NPU_EXPECT_OK(machine_.driver->memory->copy_to_host(
        stream_, after_.data(), base_, after_.size()));
  }
  const std::uint8_t* result() const {
    return after_.data() + kGuard;
  }
  // First byte that changed and is not marked in `written`; -1: none.
  std::int64_t changed(const std::vector<bool>& written) const {
    for (std::size_t i = 0; i < after_.size(); ++i) {
      const bool inside = i >= kGuard && i - kGuard < written.size();
      if (after_[i] != before_[i] && !(inside && written[i - kGuard])) {
        return static_cast<std::int64_t>(i) - static_cast<std::int64_t>(kGuard);
      }
    }
    return -1;
  }

 private:
  const Machine& machine_;
  npu_stream stream_;
  void* base_ = nullptr;
  Bytes before_;
  Bytes after_;
};

}  // namespace npu::kit
