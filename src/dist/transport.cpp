// SPDX-License-Identifier: Apache-2.0
// How the collectives of this process were carried out, counted.
#include "dist/transport.h"

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

void count_transport(const std::string& collective, Transport transport) {
  const std::lock_guard lock(counts().mutex);
  ++counts().of[collective][static_cast<unsigned>(transport)];
}

std::map<std::string, std::array<std::uint64_t, 3>> counted_transports() {
  const std::lock_guard lock(counts().mutex);
  return counts().of;
}

}  // namespace npu::dist
