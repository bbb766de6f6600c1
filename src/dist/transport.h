// SPDX-License-Identifier: Apache-2.0
// How the collectives of this process were carried out, counted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace npu::dist {

enum class Transport : unsigned {
  kDriver,  // a driver's communicator
  kShared,  // Gloo, on the device's own bytes
  kStaged,  // Gloo, on copies in host memory
};

void count_transport(const std::string& collective, Transport transport);
// By name of the collective: how many took each.
std::map<std::string, std::array<std::uint64_t, 3>> counted_transports();

}  // namespace npu::dist
