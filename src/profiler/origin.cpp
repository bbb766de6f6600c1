// SPDX-License-Identifier: Apache-2.0
// Which operator and which user's range a thread is inside of.
#include "profiler/origin.h"

#include <atomic>
#include <vector>

namespace npu::profiler {
namespace {

std::atomic<std::uint64_t> session{0};

struct Stacks {
  std::uint64_t session = 0;
  std::vector<std::uint64_t> ops;
  std::vector<std::uint64_t> ranges;
};

Stacks& mine() {
  static thread_local Stacks stacks;
  const std::uint64_t now = session.load(std::memory_order_relaxed);
  if (stacks.session != now) {
    stacks.session = now;
    stacks.ops.clear();
    stacks.ranges.clear();
  }
  return stacks;
}

void pop(std::vector<std::uint64_t>& stack) noexcept {
  if (!stack.empty()) {
    stack.pop_back();
  }
}

}  // namespace

void forget_origins() noexcept {
  session.fetch_add(1, std::memory_order_relaxed);
}

Origin current_origin() noexcept {
  const Stacks& stacks = mine();
  return {
      stacks.ops.empty() ? 0 : stacks.ops.back(),
      stacks.ranges.empty() ? 0 : stacks.ranges.back()};
}

void push_op(std::uint64_t id) {
  mine().ops.push_back(id);
}
void pop_op() noexcept {
  pop(mine().ops);
}
void push_range(std::uint64_t id) {
  mine().ranges.push_back(id);
}
void pop_range() noexcept {
  pop(mine().ranges);
}

}  // namespace npu::profiler
