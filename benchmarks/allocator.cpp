// SPDX-License-Identifier: Apache-2.0
// Nanoseconds per allocate + free pair, beside malloc + free as the reference.
//
// Rounds of both alternate, so that a machine that slows down slows both; the
// median of the rounds is printed, one line per case:
//   <case> <ns npu> <ns malloc>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_backend.h"

namespace {

using npu::memory::CachingAllocator;
using npu::memory::kKiB;
using npu::memory::kMiB;

constexpr int kRounds = 31;
constexpr int kPairs = 20000;

template <typename Fn>
double ns_per_pair(Fn fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  const std::chrono::duration<double, std::nano> took =
      std::chrono::steady_clock::now() - start;
  return took.count() / kPairs;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Holds `depth` blocks of sizes from the list at a time, as a forward pass
// does, then lets them go in reverse.
template <typename Take, typename Give>
void walk(
    const std::vector<std::size_t>& sizes,
    std::size_t depth,
    Take take,
    Give give) {
  std::vector<void*> held(depth);
  for (int done = 0; done < kPairs; done += static_cast<int>(depth)) {
    for (std::size_t i = 0; i < depth; ++i) {
      held[i] = take(sizes[i % sizes.size()]);
    }
    for (std::size_t i = depth; i > 0; --i) {
      give(held[i - 1]);
    }
  }
}

void report(
    const char* name,
    CachingAllocator& allocator,
    const std::vector<std::size_t>& sizes,
    std::size_t depth) {
  const auto ours = [&] {
    walk(
        sizes,
        depth,
        [&](std::size_t n) {
          return allocator.allocate({0, 0}, n);
        },
        [&](void* ptr) { allocator.free(ptr); });
  };
  const auto system = [&] {
    walk(
        sizes,
        depth,
        [](std::size_t n) {
          void* ptr = std::malloc(n);
          asm volatile("" : "+r"(ptr) : : "memory");
          return ptr;
        },
        [](void* ptr) { std::free(ptr); });
  };
  std::vector<double> npu_ns;
  std::vector<double> malloc_ns;
  ours();
  system();
  for (int round = 0; round < kRounds; ++round) {
    npu_ns.push_back(ns_per_pair(ours));
    malloc_ns.push_back(ns_per_pair(system));
  }
  std::printf("%-24s %8.1f %8.1f\n", name, median(npu_ns), median(malloc_ns));
}

}  // namespace

int main() {
  npu::memory::FakeBackend backend(std::size_t{4} << 30);
  CachingAllocator allocator(backend, npu::memory::Config{});
  std::printf("%-24s %8s %8s\n", "# case", "npu", "malloc");
  report("small, one at a time", allocator, {256}, 1);
  report("large, one at a time", allocator, {4 * kMiB}, 1);
  report(
      "mixed small, 64 held",
      allocator,
      {256, 1024, 4096, 512, 65536, 2048, 16384},
      64);
  report(
      "mixed all, 64 held",
      allocator,
      {256, 4096, 2 * kMiB, 65536, 3 * kMiB, 512 * kKiB},
      64);
  const int before = backend.allocs;
  report(
      "same again",
      allocator,
      {256, 4096, 2 * kMiB, 65536, 3 * kMiB, 512 * kKiB},
      64);
  if (backend.allocs != before) {
    std::fprintf(stderr, "a step that repeats itself took driver memory\n");
    return 1;
  }
  return 0;
}
