// SPDX-License-Identifier: Apache-2.0
// Which way the collectives of this process took, counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace npu::dist {

enum class Way : unsigned {
  kDriver,  // a driver's communicator
  kShared,  // Gloo, on the device's own bytes
  kStaged,  // Gloo, on copies in host memory
};

void count_way(const std::string& collective, Way way);
// By name of the collective: how many took each way.
std::map<std::string, std::array<std::uint64_t, 3>> counted_ways();

}  // namespace npu::dist
