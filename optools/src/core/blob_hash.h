// SPDX-License-Identifier: Apache-2.0
// A 128-bit hash of bytes: the name of a tensor's contents in a capture.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

namespace optools {

struct BlobHash {
  uint64_t first = 0;
  uint64_t second = 0;
  auto operator<=>(const BlobHash&) const = default;

  // 32 hex digits, `first` then `second`.
  std::string hex() const;
};

struct BlobHashKey {
  size_t operator()(const BlobHash& hash) const {
    return hash.first;
  }
};

// Defined in docs/capture-format.md; the same on every machine. Not meant to
// resist somebody who wants two contents to have one name.
BlobHash hash_bytes(const void* data, size_t bytes);

}  // namespace optools
