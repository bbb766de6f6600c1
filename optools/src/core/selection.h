// SPDX-License-Identifier: Apache-2.0
// Which calls a tool wants, in a form that is cheap to ask on every call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/thread.h"

namespace optools {

struct Call;

// A yes or no per number of a Names table. Python fills it when a name is
// first met; taps read it from any thread.
class Verdicts {
 public:
  Verdicts() = default;
  ~Verdicts() {
    for (auto& block : blocks_) {
      delete block.load();
    }
  }
  Verdicts(const Verdicts&) = delete;
  Verdicts& operator=(const Verdicts&) = delete;

  void set(uint32_t number, bool wanted) {
    if (number >= kBlock * kBlocks) {
      throw std::length_error("op_tools: more than 16 million names");
    }
    auto& slot = blocks_[number / kBlock];
    Block* block = slot.load(std::memory_order_acquire);
    if (block == nullptr) {
      if (!wanted) {
        return;
      }
      auto fresh = std::make_unique<Block>();
      if (slot.compare_exchange_strong(block, fresh.get())) {
        block = fresh.release();
      }
    }
    (*block)[number % kBlock].store(wanted, std::memory_order_relaxed);
  }
  bool wanted(uint32_t number) const {
    if (number >= kBlock * kBlocks) {
      return false;
    }
    const Block* block =
        blocks_[number / kBlock].load(std::memory_order_acquire);
    return block != nullptr &&
           (*block)[number % kBlock].load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kBlock = 8192;
  static constexpr uint32_t kBlocks = 2048;
  using Block = std::array<std::atomic<bool>, kBlock>;
  std::array<std::atomic<Block*>, kBlocks> blocks_{};
};

struct Selection {
  static constexpr int64_t kNoLastStep = int64_t{1} << 62;

  // Operators taken by their own name; with `by_api`, those launched inside a
  // wanted API call (or its backward) are taken as well.
  bool every_operator = true;
  std::vector<bool> operators;  // by Operator::index, when not every one
  std::vector<bool> refused;    // never, whatever else says
  bool by_api = false;
  Verdicts apis;
  Verdicts refused_apis;
  bool refuses_apis = false;
  bool by_module = false;
  Verdicts modules;

  uint8_t phases = 7;    // bit per Phase
  uint64_t devices = 0;  // bit per c10::DeviceType
  int64_t first_step = 0;
  int64_t last_step = kNoLastStep;
  uint32_t thread = 0;  // 0: every thread

  // May any call of this operator be wanted? Decides which taps there are.
  bool may_want(uint32_t op) const {
    if (op < refused.size() && refused[op]) {
      return false;
    }
    return every_operator || by_api || names(op);
  }
  bool names(uint32_t op) const {
    return op < operators.size() && operators[op];
  }
  // Is no call left out?
  bool everything() const {
    return every_operator && refused.empty() && !refuses_apis && !by_module &&
           phases == 7 && first_step == 0 && thread == 0 &&
           last_step >= kNoLastStep;
  }
  bool needs_origin() const {
    return by_api || by_module || refuses_apis;
  }
  bool wants(const Call& call) const;
};

}  // namespace optools
