// SPDX-License-Identifier: Apache-2.0
// A counter per operator, for any number of operators: threads count while
// others make new ones known.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace optools {

class CallCounts {
 public:
  CallCounts() = default;
  ~CallCounts() {
    for (auto& block : blocks_) {
      delete block.load();
    }
  }
  CallCounts(const CallCounts&) = delete;
  CallCounts& operator=(const CallCounts&) = delete;

  // How many came before.
  uint64_t add(uint32_t op) {
    auto& slot = blocks_[op / kBlock % kBlocks];
    Block* block = slot.load(std::memory_order_acquire);
    if (block == nullptr) [[unlikely]] {
      block = make(slot);
    }
    return (*block)[op % kBlock].fetch_add(1, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kBlock = 1024;
  static constexpr uint32_t kBlocks = 1024;
  using Block = std::array<std::atomic<uint64_t>, kBlock>;

  static Block* make(std::atomic<Block*>& slot) {
    auto* fresh = new Block{};
    Block* there = nullptr;
    if (slot.compare_exchange_strong(there, fresh)) {
      return fresh;
    }
    delete fresh;
    return there;
  }

  std::array<std::atomic<Block*>, kBlocks> blocks_{};
};

}  // namespace optools
