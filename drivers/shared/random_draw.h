// SPDX-License-Identifier: Apache-2.0
// One element of each distribution that is computed in float32, from the words
// that it takes (docs/random-numbers.md).
#pragma once

#include <cstdint>

#include "shared/dtype.h"
#include "shared/random_math.h"

namespace npu {

// Top bits of a word as a number in [0, 1).
template <int kBits>
NPU_SHARED_INLINE float unit(std::uint32_t w) {
  constexpr float kScale = 1.0f / static_cast<float>(1 << kBits);
  return static_cast<float>(static_cast<std::int32_t>(w >> (32 - kBits))) *
         kScale;
}

// All bits of a word as a number in (0, 1].
NPU_SHARED_INLINE float open_unit(std::uint32_t w) {
  return static_cast<float>(w) * 0x1p-32f + 0x1p-33f;
}

NPU_SHARED_INLINE float uniform_f32(std::uint32_t w, float from, float to) {
  const float range = to - from;
  const float x = unit<24>(w) * range + from;
  return x == to ? from : x;
}

// T: F16 with 11 bits, BF16 with 8; the number's bits.
template <class T, int kBits>
NPU_SHARED_INLINE std::uint16_t uniform_half(
    std::uint32_t w, float from, float to) {
  const float range = to - from;
  const T x(unit<kBits>(w) * range + from);
  return static_cast<float>(x) == to ? T(from).bits : x.bits;
}

struct NormalPair {
  float first;
  float second;
};

// Two numbers of mean 0 and deviation 1, from two words.
NPU_SHARED_INLINE NormalPair normal_f32(std::uint32_t w0, std::uint32_t w1) {
  const float u1 = open_unit(w0);
  const float u2 = open_unit(w1);
#if defined(__CUDA_ARCH__)
  const float r = __fsqrt_rn(-2.0f * log_f32(u1));
#else
  const float r = __builtin_sqrtf(-2.0f * log_f32(u1));
#endif
  const SinCos t = sincos_quarters(4.0f * u2);
  return {r * t.cos, r * t.sin};
}

NPU_SHARED_INLINE float exponential_f32(
    std::uint32_t w, float lambda, float least) {
  const float e = -log_f32(1.0f - unit<24>(w));
  const float x = (e > 0x1p-24f ? e : 0x1p-24f) / lambda;
  return x > least ? x : least;
}

NPU_SHARED_INLINE float geometric_f32(std::uint32_t w, float log_fail) {
  const float x = ceil_f32(log_f32(1.0f - unit<24>(w)) / log_fail);
  return x > 1.0f ? x : 1.0f;
}

NPU_SHARED_INLINE float cauchy_f32(std::uint32_t w, float median, float sigma) {
  const float v = (unit<24>(w) - 0.5f) + 0x1p-25f;
  const SinCos t = sincos_quarters(2.0f * v);
  return t.sin / t.cos * sigma + median;
}

}  // namespace npu
