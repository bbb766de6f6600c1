// SPDX-License-Identifier: Apache-2.0
// Interface profiler/1 on CUPTI's activity records. It has not run on a GPU
// yet: NPU_CUDA_TRY.
#pragma once

#include "cuda.h"
#include "npu/profiler.h"

namespace npu::cuda {

// Null where CUPTI cannot be used; the log has said why, once.
const npu_profiler* profiler_interface() noexcept;

inline std::atomic<bool> profiling{false};

// What this thread queues while this lives has the call's number in its
// records.
class Numbered {
 public:
  explicit Numbered(std::uint64_t correlation) noexcept {
    if (profiling.load(std::memory_order_relaxed) && correlation != 0) {
      push(correlation);
    }
  }
  ~Numbered() {
    if (pushed_) {
      pop();
    }
  }
  Numbered(const Numbered&) = delete;
  Numbered& operator=(const Numbered&) = delete;

 private:
  void push(std::uint64_t correlation) noexcept;
  static void pop() noexcept;

  bool pushed_ = false;
};

// Before a stream goes: records name it.
void remember_stream(const Stream& stream) noexcept;

}  // namespace npu::cuda
