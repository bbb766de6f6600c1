// SPDX-License-Identifier: Apache-2.0
// Which calls are compared. The program's own time is what is left of the
// clock's when looking at calls and waiting for room is taken away.
#include "tools/compare_sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/records.h"

namespace optools {
namespace {

constexpr int64_t kWindow = 1'000'000'000;  // nanoseconds before a decision
constexpr uint64_t kLookEvery = 64;         // calls
constexpr uint64_t kMostEvery = 1 << 20;

}  // namespace

uint64_t shape_class(const Call& call) {
  uint64_t hash = call.op.index + 1;
  const auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  };
  for (const auto& value : call.inputs()) {
    each_tensor(value, [&](const at::Tensor& t) {
      mix(static_cast<uint64_t>(t.scalar_type()) << 8 | t.dim());
      for (const auto size : t.sizes()) {
        mix(std::bit_width(static_cast<uint64_t>(size)));
      }
    });
  }
  return hash;
}

Sampling::Sampling(uint64_t every, double most, int threads)
    : adapts_(every == 0 && most > 0),
      most_(most),
      threads_(threads),
      every_(std::max<uint64_t>(every, 1)),
      window_{now_ns(), 0, 0, 0} {}

void Sampling::looked(
    uint64_t number, int64_t kernel, int64_t look, int64_t wait) {
  kernels_.fetch_add(kernel, std::memory_order_relaxed);
  looking_.fetch_add(look, std::memory_order_relaxed);
  waiting_.fetch_add(wait, std::memory_order_relaxed);
  if ((calls_.fetch_add(1, std::memory_order_relaxed) + 1) % kLookEvery == 0 &&
      adapts_) {
    decide(number);
  }
}

// Calls are only ever made rarer: a program that was slow once stays
// comparable from step to step.
void Sampling::decide(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const Window now{now_ns(), looking_, waiting_, calls_};
  const auto clock = now.time - window_.time;
  if (clock < kWindow) {
    return;
  }
  const auto look = now.look - window_.look;
  // Of all calls looked at: those that wait to be judged cost as much.
  const double judging =
      static_cast<double>(judged_) *
      static_cast<double>(now.calls - window_.calls) /
      static_cast<double>(std::max<uint64_t>(judged_calls_, 1)) / threads_;
  const auto plain =
      std::max<int64_t>(clock - look - (now.wait - window_.wait), 1000);
  window_ = now;
  const double cost = static_cast<double>(look) + judging;
  const double slowdown = 1 + cost / static_cast<double>(plain);
  if (slowdown <= most_) {
    return;
  }
  if (since_ == 0) {
    since_ = number;
    slowdown_ = slowdown;
  }
  const double rarer = std::ceil(
      cost / (std::max(most_ - 1, 0.01) * static_cast<double>(plain)));
  const double wanted =
      static_cast<double>(every_.load()) * std::max(rarer, 2.0);
  every_ =
      static_cast<uint64_t>(std::min(wanted, static_cast<double>(kMostEvery)));
}

Sampling::Costs Sampling::costs() const {
  const std::lock_guard lock(mutex_);
  return {calls_, kernels_, looking_, judged_, every_, since_, slowdown_};
}

}  // namespace optools
