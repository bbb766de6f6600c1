// SPDX-License-Identifier: Apache-2.0
// A 128-bit hash of bytes: the name of a tensor's contents in a capture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace optools {

struct BlobHash {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const BlobHash&) const = default;

  // 32 hex digits: bytes() in hexadecimal.
  std::string hex() const;
  // 16 bytes: `first`, then `second`, each most significant byte first.
  std::array<char, 16> bytes() const {
    std::array<char, 16> out;
    for (int i = 0; i < 8; ++i) {
      out[i] = static_cast<char>(first >> (56 - 8 * i));
      out[8 + i] = static_cast<char>(second >> (56 - 8 * i));
    }
    return out;
  }
};

// XXH3 of 128 bits without a seed (docs/capture-format.md): the same on every
// machine. No protection against deliberate collisions.
BlobHash hash_bytes(const void* data, size_t bytes);

}  // namespace optools
