// SPDX-License-Identifier: Apache-2.0
// What comparing costs, and how many calls are compared for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/tool.h"

namespace optools {

// Operator, dtypes, and of each size its order of magnitude.
uint64_t shape_class(const Call& call);

class Sampling {
 public:
  // One call in `every`; 0: all of them, and fewer once the program would be
  // slower than `most` times (0: however slow it is). `threads` judge.
  Sampling(uint64_t every, double most, int threads);

  uint64_t every() const {
    return every_.load(std::memory_order_relaxed);
  }
  // A call that was compared: nanoseconds of its kernel, of looking at it in
  // the program's thread, and of waiting there for room in the queue.
  void looked(uint64_t number, int64_t kernel, int64_t look, int64_t wait);
  // One was judged, in a thread of ours.
  void judged(int64_t took) {
    judged_.fetch_add(took, std::memory_order_relaxed);
    judged_calls_.fetch_add(1, std::memory_order_relaxed);
  }

  struct Costs {
    uint64_t calls = 0;   // compared
    int64_t kernels = 0;  // nanoseconds
    int64_t looking = 0;  // in the program's threads
    int64_t judging = 0;  // in ours
    uint64_t every = 1;
    uint64_t since = 0;   // the call from which on not all are compared
    double slowdown = 0;  // that was expected then
  };
  Costs costs() const;

 private:
  struct Window {  // sums when it began
    int64_t time, look, wait;
    uint64_t calls;
  };
  void decide(uint64_t number);

  const bool adapts_;
  const double most_;
  const int threads_;
  std::atomic<uint64_t> every_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<int64_t> kernels_{0};
  std::atomic<int64_t> looking_{0};
  std::atomic<int64_t> waiting_{0};
  std::atomic<int64_t> judged_{0};
  std::atomic<uint64_t> judged_calls_{0};
  mutable std::mutex mutex_;
  Window window_;
  uint64_t since_ = 0;
  double slowdown_ = 0;
};

}  // namespace optools
