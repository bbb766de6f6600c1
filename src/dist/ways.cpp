// SPDX-License-Identifier: Apache-2.0
// Which way the collectives of this process took, counted.
#include "dist/ways.h"

#include <mutex>

namespace npu::dist {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, std::array<std::uint64_t, 3>> of;
};

// Never destroyed: lanes outlive main().
Counts& counts() {
  static auto* const made = new Counts;
  return *made;
}

}  // namespace

void count_way(const std::string& collective, Way way) {
  const std::lock_guard lock(counts().mutex);
  ++counts().of[collective][static_cast<unsigned>(way)];
}

std::map<std::string, std::array<std::uint64_t, 3>> counted_ways() {
  const std::lock_guard lock(counts().mutex);
  return counts().of;
}

}  // namespace npu::dist
