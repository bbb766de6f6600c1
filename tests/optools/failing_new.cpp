// SPDX-License-Identifier: Apache-2.0
// For tests, preloaded: an operator new that fails once for code in a range of
// addresses, so that a library can be seen to bear its own errors.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uintptr_t> g_begin{0};
std::atomic<uintptr_t> g_end{0};
std::atomic<int> g_left{-1};  // allocations that succeed first; -1: all do
}  // namespace

extern "C" void fail_allocation(uintptr_t begin, uintptr_t end, int after) {
  g_begin = begin;
  g_end = end;
  g_left = after;
}

// Has the allocation failed?
extern "C" int allocation_failed() {
  return g_left < 0;
}

__attribute__((noinline)) void* operator new(size_t size) {
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  if (g_left.load(std::memory_order_relaxed) >= 0 && caller >= g_begin &&
      caller < g_end && g_left.fetch_sub(1) == 0) {
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
