// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, one block at a time: the definition the lanes must agree with.
#pragma once

#include <cstdint>

#include "shared/inline.h"

namespace npu {

struct PhiloxBlock {
  std::uint32_t w[4];
};

inline constexpr std::uint32_t kPhiloxM0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxM1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxK0 = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxK1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

NPU_SHARED constexpr PhiloxBlock philox(
    std::uint64_t seed, std::uint64_t low, std::uint64_t high) noexcept {
  auto c0 = static_cast<std::uint32_t>(low);
  auto c1 = static_cast<std::uint32_t>(low >> 32);
  auto c2 = static_cast<std::uint32_t>(high);
  auto c3 = static_cast<std::uint32_t>(high >> 32);
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxM0} * c0;
    const std::uint64_t p1 = std::uint64_t{kPhiloxM1} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += kPhiloxK0;
    k1 += kPhiloxK1;
  }
  return {{c0, c1, c2, c3}};
}

// Known answers of the published test vectors (Random123).
static_assert(philox(0, 0, 0).w[0] == 0x6627e8d5u);
static_assert(philox(0, 0, 0).w[3] == 0x9b00dbd8u);
static_assert(philox(~0ull, ~0ull, ~0ull).w[0] == 0x408f276du);
static_assert(philox(~0ull, ~0ull, ~0ull).w[3] == 0x6d5451fdu);
static_assert(
    philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e).w[0] ==
    0xd16cfe09u);

// A call's place in the stream: key, and B of the contract.
struct PhiloxStream {
  std::uint64_t seed;
  std::uint64_t block;
};

}  // namespace npu
