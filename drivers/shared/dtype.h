// SPDX-License-Identifier: Apache-2.0
// Element types of the contract as C++: sizes, half types, their conversions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "npu/op.h"
#include "shared/inline.h"

namespace npu {

NPU_SHARED_CONSTEXPR float as_float(std::uint32_t bits) noexcept {
  return __builtin_bit_cast(float, bits);
}
NPU_SHARED_CONSTEXPR std::uint32_t as_bits(float value) noexcept {
  return __builtin_bit_cast(std::uint32_t, value);
}

// Bytes of one element; 0 for NPU_ABSENT and unknown dtypes.
NPU_SHARED_CONSTEXPR std::size_t element_bytes(npu_dtype dtype) noexcept {
  constexpr std::uint8_t kBytes[NPU_DTYPE_COUNT] = {
      0, 1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1, 1};
  return dtype < NPU_DTYPE_COUNT ? kBytes[dtype] : 0;
}

// How a small float is laid out: sign, exponent bits, mantissa bits.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_inf;        // else overflow is NaN (fnuz) or the largest number
  bool unsigned_zero;  // "fnuz": one zero, and NaN where -0 would be
};
inline constexpr FloatFormat kF16Format{5, 10, 15, true, false};
inline constexpr FloatFormat kE4m3fnFormat{4, 3, 7, false, false};
inline constexpr FloatFormat kE5m2Format{5, 2, 15, true, false};
inline constexpr FloatFormat kE4m3fnuzFormat{4, 3, 8, false, true};
inline constexpr FloatFormat kE5m2fnuzFormat{5, 2, 16, false, true};

// Round a float to nearest, ties to even. Branch-free so that it vectorises.
// NaN stays NaN: float16 keeps sign and leading payload bits, as F16C does.
template <FloatFormat F>
NPU_SHARED_CONSTEXPR std::uint16_t encode_float(float value) noexcept {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - F.bias)
                                    << 23;
  // The smallest normal of F, as float bits.
  constexpr std::uint32_t kNormal = kRebias + (1u << 23);
  constexpr std::uint32_t kAll =
      (1u << (F.exponent_bits + F.mantissa_bits)) - 1;
  constexpr std::uint32_t kInf = ((1u << F.exponent_bits) - 1)
                                 << F.mantissa_bits;
  constexpr std::uint32_t kSign = 1u << (F.exponent_bits + F.mantissa_bits);
  // Codes from here on are not finite.
  constexpr std::uint32_t kBeyond = F.has_inf         ? kInf
                                    : F.unsigned_zero ? kAll + 1
                                                      : kAll;
  constexpr std::uint32_t kNan = F.has_inf         ? kAll
                                 : F.unsigned_zero ? kSign
                                                   : kAll;
  constexpr bool kPayload = F.exponent_bits == 5 && F.mantissa_bits == 10;

  const std::uint32_t bits = as_bits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 31) ? kSign : 0u;

  const std::uint32_t odd = (magnitude >> kShift) & 1u;
  const std::uint32_t normal =
      (magnitude - kRebias + ((1u << (kShift - 1)) - 1u) + odd) >> kShift;
  // Adding 2^k, k chosen so that one ulp of the sum is F's smallest step, lets
  // the adder round subnormals.
  constexpr std::uint32_t kMagic =
      static_cast<std::uint32_t>(127 - F.bias + 1 + kShift) << 23;
  const std::uint32_t tiny =
      as_bits(as_float(magnitude) + as_float(kMagic)) - kMagic;
  std::uint32_t code = magnitude < kNormal ? tiny : normal;
  // Past the range of `normal` the subtraction still holds the order.
  constexpr std::uint32_t kTooLarge = F.has_inf         ? kInf
                                      : F.unsigned_zero ? kNan
                                                        : kBeyond - 1;
  code = code >= kBeyond ? kTooLarge : code;
  const std::uint32_t nan =
      kPayload ? (kInf | (1u << (F.mantissa_bits - 1)) |
                  ((magnitude >> kShift) & ((1u << F.mantissa_bits) - 1u)))
               : kNan;
  code = magnitude > 0x7f800000u ? nan : code;
  if constexpr (F.unsigned_zero) {
    return static_cast<std::uint16_t>(code == 0 ? 0u : code | sign);
  } else {
    return static_cast<std::uint16_t>(code | sign);
  }
}

template <FloatFormat F>
NPU_SHARED_CONSTEXPR float decode_float(std::uint16_t code) noexcept {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr std::uint32_t kAll =
      (1u << (F.exponent_bits + F.mantissa_bits)) - 1;
  constexpr std::uint32_t kInf = ((1u << F.exponent_bits) - 1)
                                 << F.mantissa_bits;
  constexpr std::uint32_t kSign = kAll + 1;
  const std::uint32_t magnitude = code & kAll;
  const std::uint32_t sign = (code & kSign) ? 0x80000000u : 0u;
  // Bits read as a float with bias 127, times 2^(127 - bias): exact, also for
  // subnormals.
  constexpr float kScale =
      as_float(static_cast<std::uint32_t>(127 + 127 - F.bias) << 23);
  std::uint32_t out = as_bits(as_float(magnitude << kShift) * kScale);
  if constexpr (F.has_inf) {
    out = magnitude >= kInf ? 0x7f800000u | (magnitude - kInf) << kShift |
                                  (magnitude > kInf ? 0x400000u : 0u)
                            : out;
  } else if constexpr (F.unsigned_zero) {
    out = code == kSign ? 0x7fc00000u : out;
  } else {
    out = magnitude == kAll ? 0x7fc00000u : out;
  }
  return as_float(out | sign);
}

// IEEE binary16 and bfloat16: stored here, computed with as float.
struct F16 {
  std::uint16_t bits;
  F16() = default;
  [[gnu::always_inline]] NPU_SHARED explicit constexpr F16(float value) noexcept
      : bits(encode_float<kF16Format>(value)) {}
  [[gnu::always_inline]] NPU_SHARED constexpr operator float() const noexcept {
    return decode_float<kF16Format>(bits);
  }
};

struct BF16 {
  std::uint16_t bits;
  BF16() = default;
  [[gnu::always_inline]] NPU_SHARED explicit constexpr BF16(
      float value) noexcept
      : bits(encode(value)) {}
  [[gnu::always_inline]] NPU_SHARED constexpr operator float() const noexcept {
    return as_float(static_cast<std::uint32_t>(bits) << 16);
  }
  [[gnu::always_inline]] NPU_SHARED static constexpr std::uint16_t encode(
      float value) noexcept {
    const std::uint32_t u = as_bits(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return static_cast<std::uint16_t>(
        (u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
  }
};

// 8-bit power of two, 0xff is NaN; ties go to the even exponent field of the
// float, which is every field but zero's.
NPU_SHARED_CONSTEXPR std::uint8_t encode_e8m0(float value) noexcept {
  const std::uint32_t bits = as_bits(value);
  const std::uint32_t exponent = (bits >> 23) & 0xffu;
  const std::uint32_t mantissa = bits & 0x7fffffu;
  const bool up = exponent != 0xff && (mantissa > 0x400000u ||
                                       (mantissa == 0x400000u && exponent > 0));
  return static_cast<std::uint8_t>(exponent + (up ? 1u : 0u));
}
NPU_SHARED_CONSTEXPR float decode_e8m0(std::uint8_t code) noexcept {
  return as_float(
      code == 0xff ? 0x7fc00000u
      : code == 0  ? 0x00400000u
                   : static_cast<std::uint32_t>(code) << 23);
}

}  // namespace npu
