// SPDX-License-Identifier: Apache-2.0
// The hash of contents: eight sums of products of keyed words, where the key
// changes from place to place, so that order matters.
#include "core/blob_hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace optools {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kStripe = 64;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

constexpr uint64_t mix_word(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr std::array<uint64_t, 8> make_keys() {
  std::array<uint64_t, 8> keys{};
  for (uint64_t i = 0; i < 8; ++i) {
    keys[i] = mix_word((i + 1) * kGolden);
  }
  return keys;
}
constexpr auto kKeys = make_keys();

using Sums = std::array<uint64_t, 8>;

inline void add_pair(
    Sums& sums, const uint64_t* words, size_t pair, uint64_t place) {
  const uint64_t a = words[2 * pair];
  const uint64_t b = words[2 * pair + 1];
  const auto product =
      static_cast<unsigned __int128>(a ^ kKeys[2 * pair]) *
      static_cast<unsigned __int128>(b ^ (kKeys[2 * pair + 1] + place));
  sums[2 * pair] += static_cast<uint64_t>(product) + b;
  sums[2 * pair + 1] += static_cast<uint64_t>(product >> 64) + a;
}

inline void add_stripe(Sums& sums, const char* stripe, uint64_t place) {
  uint64_t words[8];
  std::memcpy(words, stripe, kStripe);
  add_pair(sums, words, 0, place);
  add_pair(sums, words, 1, place);
  add_pair(sums, words, 2, place);
  add_pair(sums, words, 3, place);
}

}  // namespace

BlobHash hash_bytes(const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  Sums sums{};
  uint64_t place = 0;
  size_t left = bytes;
  for (; left >= kStripe; left -= kStripe, at += kStripe, place += kGolden) {
    add_stripe(sums, at, place);
  }
  if (left != 0) {
    char last[kStripe] = {};
    std::memcpy(last, at, left);
    add_stripe(sums, last, place);
  }
  BlobHash hash{mix_word(bytes + 1), mix_word(bytes + kGolden)};
  for (size_t i = 0; i < sums.size(); ++i) {
    hash.first += mix_word(sums[i] ^ kKeys[i]);
    hash.second += mix_word(sums[i] + kKeys[7 - i]);
  }
  return hash;
}

std::string BlobHash::hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint64_t half : {first, second}) {
    for (int shift = 60; shift >= 0; shift -= 4) {
      text += kDigits[half >> shift & 15];
    }
  }
  return text;
}

}  // namespace optools
