// SPDX-License-Identifier: Apache-2.0
// float32 functions for the random kinds: no branches, no tables, no fused
// multiply-add, so that loops over them vectorise and give the same bits with
// every instruction set. Polynomials are minimax fits; all stay within 2 ulp
// on the ranges stated.
#pragma once

#include <cstdint>

#include "shared/dtype.h"

namespace npu {

// Natural logarithm of a normal positive x.
NPU_SHARED_CONSTEXPR float log_f32(float x) noexcept {
  constexpr std::int32_t kHalfRoot = 0x3f3504f3;  // sqrt(1/2)
  const auto bits = static_cast<std::int32_t>(as_bits(x));
  const std::int32_t exponent = (bits - kHalfRoot) >> 23;
  const float m = as_float(
      static_cast<std::uint32_t>(bits) -
      (static_cast<std::uint32_t>(exponent) << 23));
  const float f = m - 1.0f;
  float p = 0.06915368139743805f;
  p = p * f + -0.11789807677268982f;
  p = p * f + 0.11872976273298264f;
  p = p * f + -0.1238434836268425f;
  p = p * f + 0.14218658208847046f;
  p = p * f + -0.16669251024723053f;
  p = p * f + 0.20002226531505585f;
  p = p * f + -0.24999986588954926f;
  p = p * f + 0.3333331048488617f;
  const float e = static_cast<float>(exponent);
  const float z = f * f;
  // ln 2 in two parts: e * the first is exact.
  float y = p * f * z + e * -2.12194440e-4f;
  y = y - 0.5f * z;
  return (f + y) + e * 0.693359375f;
}

struct SinCos {
  float sin;
  float cos;
};

// Of an angle in quarter turns, |quarters| <= 2^22. The reduction is exact, so
// results near zero keep their relative accuracy.
NPU_SHARED_CONSTEXPR SinCos sincos_quarters(float quarters) noexcept {
  const float shifted = quarters + (quarters < 0 ? -0.5f : 0.5f);
  const auto q = static_cast<std::int32_t>(shifted);
  const float d = quarters - static_cast<float>(q);
  const float z = d * d;
  float s = 1.582625409355387e-4f;
  s = s * z + -0.004681297577917576f;
  s = s * z + 0.07969258725643158f;
  s = s * z + -0.6459640860557556f;
  // pi/2 in two parts.
  const float sine =
      d * 1.5707963705062866f + d * (s * z + -4.371139000186243e-8f);
  float c = -2.4857057724148035e-5f;
  c = c * z + 9.191659046337008e-4f;
  c = c * z + -0.020863469690084457f;
  c = c * z + 0.25366950035095215f;
  c = c * z + -1.2337005138397217f;
  const float cosine = 1.0f + c * z;
  const bool odd = (q & 1) != 0;
  const std::uint32_t sin_sign = static_cast<std::uint32_t>(q & 2) << 30;
  const std::uint32_t cos_sign = static_cast<std::uint32_t>((q + 1) & 2) << 30;
  return {
      as_float(as_bits(odd ? cosine : sine) ^ sin_sign),
      as_float(as_bits(odd ? sine : cosine) ^ cos_sign)};
}

// e^x for every x: overflow is infinity, underflow goes through subnormals.
NPU_SHARED_CONSTEXPR float exp_f32(float x) noexcept {
  float y = x > 89.0f ? 89.0f : x;
  y = y < -104.0f ? -104.0f : y;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const float n = (y * 1.44269504f + kRound) - kRound;
  const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9917817553505301e-4f;
  p = p * r + 0.0013946074759587646f;
  p = p * r + 0.008333265781402588f;
  p = p * r + 0.041666269302368164f;
  p = p * r + 0.1666666716337204f;
  p = p * r + 0.5f;
  const float e = 1.0f + (r + p * r * r);
  // NaN converts to some integer and leaves through `e`.
  const float safe = n == n ? n : 0.0f;
  const auto i = static_cast<std::int32_t>(safe);
  const std::int32_t half = i >> 1;
  const float a = as_float(static_cast<std::uint32_t>(half + 127) << 23);
  const float b = as_float(static_cast<std::uint32_t>(i - half + 127) << 23);
  return e * a * b;
}

// Smallest integer not below x, for x >= 0.
NPU_SHARED_CONSTEXPR float ceil_f32(float x) noexcept {
  constexpr float kWhole = 8388608.0f;  // 2^23: integers from here on
  const float small = x < kWhole ? x : kWhole;
  const float down = static_cast<float>(static_cast<std::int32_t>(small));
  const float up = down + (down < small ? 1.0f : 0.0f);
  return x < kWhole ? up : x;
}

}  // namespace npu
