// SPDX-License-Identifier: Apache-2.0
// Kind unary_with: one element and up to four scalars.
#pragma once

#include "shared/map_math.h"
#include "shared/power.h"

namespace npu::formula::scalar {

template <class T>
NPU_SHARED T clamp_of(T x, const Scalars<T>& s) {
  const T raised = s.has(0) && !is_nan(x) && !(x > s.a) ? s.a : x;
  return s.has(1) && !is_nan(raised) && !(raised < s.b) ? s.b : raised;
}

// Roots and small powers differ from pow at infinities and in speed.
template <class T>
NPU_SHARED T scalar_power(T x, T y) {
  if constexpr (kIsInt<T>) {
    return integer_power(x, y);
  } else {
    if (y == T(0.5) || y == T(-0.5)) {
      const T root = std::sqrt(x);
      return y == T(0.5) ? root : divide(T(1), root);
    }
    if (y == T(3)) {
      return multiply(multiply(x, x), x);
    }
    if (y == T(-1) || y == T(-2)) {
      return divide(T(1), y == T(-1) ? x : multiply(x, x));
    }
    return power(x, y);
  }
}

template <class T>
NPU_SHARED T softshrink_of(T x, T limit) {
  return x > limit ? x - limit : x < -limit ? x + limit : x * 0;
}

template <class T>
NPU_SHARED T softplus_of(T x, T beta, T limit) {
  return x * beta > limit ? x : std::log1p(std::exp(x * beta)) / beta;
}

template <class T>
NPU_SHARED T round_decimals_of(T x, const Scalars<T>& s) {
  const T scale = std::pow(T(10), std::abs(s.a));
  return s.a < 0 ? std::nearbyint(x / scale) * scale
                 : std::nearbyint(x * scale) / scale;
}

template <class T>
NPU_SHARED T finite_part(T x, const npu_scalar* raw) {
  const auto given = [&](int k, T otherwise) {
    return raw[k].kind == NPU_SCALAR_NONE ? otherwise : scalar_as<T>(raw[k]);
  };
  constexpr T kMost = std::numeric_limits<T>::max();
  return is_nan(x)    ? given(0, T(0))
         : !is_inf(x) ? x
         : x > T(0)   ? given(1, kMost)
                      : given(2, -kMost);
}

template <class T>
NPU_SHARED T nan_to_num_of(T x, const Scalars<T>& s) {
  if constexpr (kIsComplex<T>) {
    return T(finite_part(x.real(), s.raw), finite_part(x.imag(), s.raw));
  } else if constexpr (kIsFloat<T>) {
    return finite_part(x, s.raw);
  } else {
    return x;
  }
}

template <class T>
NPU_SHARED T logit_of(T x, const Scalars<T>& s) {
  const bool clamps = s.has(0) && s.a >= 0;
  const T z = !clamps ? x : x < s.a ? s.a : x > 1 - s.a ? 1 - s.a : x;
  return std::log(z / (1 - z));
}

template <class T>
NPU_SHARED T fake_quantize_of(T x, const Scalars<T>& s) {
  const T level = std::nearbyint(x * (1 / s.a) + s.b);
  return (lesser(greater(level, s.c), s.d) - s.b) * s.a;
}

NPU_MAP1(Clamp, clamp_of(x, s))
NPU_MAP1(Threshold, x <= s.a ? s.b : x)
NPU_MAP1(Elu, x > 0 ? s.b * x : s.b * s.a * std::expm1(x * s.c))
NPU_MAP1(Celu, x > 0 ? x : s.a * std::expm1(x / s.a))
NPU_MAP1(Hardshrink, x >= -s.a && x <= s.a ? T(0) : x)
NPU_MAP1(Softshrink, softshrink_of(x, s.a))
NPU_MAP1(Softplus, softplus_of(x, s.a, s.b))
NPU_MAP1(Pow, scalar_power(x, s.a))
NPU_MAP1(Rpow, power(s.a, x))
NPU_MAP1(RoundDecimals, round_decimals_of(x, s))
NPU_MAP1(NanToNum, nan_to_num_of(x, s))
NPU_MAP1(Logit, logit_of(x, s))
NPU_MAP1(FakeQuantize, fake_quantize_of(x, s))

inline constexpr std::uint64_t kPowerBits =
    kRealBits | kComplexBits | kPromotes;
inline constexpr std::uint64_t kPromoted = kFloatBits | kPromotes;

#define NPU_UNARY_WITH_ROWS(ROW)                                \
  ROW(NPU_UNARY_WITH_CLAMP, Clamp, kRealBits | kPromotes)       \
  ROW(NPU_UNARY_WITH_THRESHOLD, Threshold, kRealBits)           \
  ROW(NPU_UNARY_WITH_LEAKY_RELU, LeakyRelu, kFloatBits)         \
  ROW(NPU_UNARY_WITH_ELU, Elu, kFloatBits)                      \
  ROW(NPU_UNARY_WITH_CELU, Celu, kFloatBits)                    \
  ROW(NPU_UNARY_WITH_HARDTANH, Clamp, kRealBits)                \
  ROW(NPU_UNARY_WITH_HARDSHRINK, Hardshrink, kFloatBits)        \
  ROW(NPU_UNARY_WITH_SOFTSHRINK, Softshrink, kFloatBits)        \
  ROW(NPU_UNARY_WITH_SOFTPLUS, Softplus, kFloatBits)            \
  ROW(NPU_UNARY_WITH_POW, Pow, kPowerBits)                      \
  ROW(NPU_UNARY_WITH_RPOW, Rpow, kPowerBits)                    \
  ROW(NPU_UNARY_WITH_ROUND_DECIMALS, RoundDecimals, kFloatBits) \
  ROW(NPU_UNARY_WITH_NAN_TO_NUM, NanToNum, kMapBits)            \
  ROW(NPU_UNARY_WITH_LOGIT, Logit, kPromoted)                   \
  ROW(NPU_UNARY_WITH_AFFINE, Affine, kPowerBits)                \
  ROW(NPU_UNARY_WITH_FAKE_QUANTIZE, FakeQuantize, kFloatBits)

}  // namespace npu::formula::scalar
