// SPDX-License-Identifier: Apache-2.0
// The hash of contents: XXH3 of 128 bits, compiled in from its header.
#include "core/blob_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace optools {

BlobHash hash_bytes(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.high64, hash.low64};
}

std::string BlobHash::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes()) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace optools
