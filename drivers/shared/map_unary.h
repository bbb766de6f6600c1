// SPDX-License-Identifier: Apache-2.0
// Kind unary: arithmetic, rounding, elementary functions, predicates.
#pragma once

#include "shared/map_math.h"

namespace npu::formula::unary {

// ---- where the standard library lacks a complex form ----

template <class T>
NPU_SHARED T exp2_of(T x) {
  if constexpr (kIsComplex<T>) {
    return std::exp(x * std::numbers::ln2_v<Real<T>>);
  } else {
    return std::exp2(x);
  }
}

template <class T>
NPU_SHARED T expm1_of(T x) {
  if constexpr (kIsComplex<T>) {
    using R = Real<T>;
    const R half = std::sin(x.imag() / 2);
    const R shrunk = -2 * half * half;  // cos - 1
    return T(
        std::expm1(x.real()) * std::cos(x.imag()) + shrunk,
        std::exp(x.real()) * std::sin(x.imag()));
  } else {
    return std::expm1(x);
  }
}

template <class T>
NPU_SHARED T log2_of(T x) {
  if constexpr (kIsComplex<T>) {
    return std::log(x) / std::numbers::ln2_v<Real<T>>;
  } else {
    return std::log2(x);
  }
}

template <class T>
NPU_SHARED T sgn_of(T x) {
  if constexpr (kIsComplex<T>) {
    return x == T(0) ? T(0) : x / std::abs(x);
  } else {
    return sign_of(x);
  }
}

template <class T, class Function>
NPU_SHARED T rounded(T x, Function function) {
  if constexpr (kIsFloat<T>) {
    return function(x);
  } else {
    return x;
  }
}

template <class T>
NPU_SHARED T sinc_of(T x) {
  const T angle = x * std::numbers::pi_v<Real<T>>;
  return x == T(0) ? T(1) : std::sin(angle) / angle;
}

template <class T>
NPU_SHARED T bitwise_not_of(T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return !x;
  } else {
    return ~x;
  }
}

template <class T>
NPU_SHARED Real<T> angle_of(T x) {
  if constexpr (kIsComplex<T>) {
    return arg(x);
  } else {
    return is_nan(x) ? x : x < 0 ? std::numbers::pi_v<T> : T(0);
  }
}

template <class T>
NPU_SHARED Real<T> real_of(T x) {
  if constexpr (kIsComplex<T>) {
    return x.real();
  } else {
    return x;
  }
}

template <class T>
NPU_SHARED bool sign_bit(T x) {
  if constexpr (kIsFloat<T>) {
    return std::signbit(x);
  } else {
    return x < T(0);
  }
}

template <class T>
NPU_SHARED Pair<T, std::int32_t> frexp_of(T x) {
  int exponent = 0;
  const T mantissa = std::frexp(x, &exponent);
  return {mantissa, std::isfinite(x) ? exponent : 0};
}

// ---- operators ----

NPU_MAP1(Sgn, sgn_of(x))
NPU_MAP1(Ceil, rounded(x, [](auto v) { return std::ceil(v); }))
NPU_MAP1(Floor, rounded(x, [](auto v) { return std::floor(v); }))
NPU_MAP1(Round, rounded(x, [](auto v) { return std::nearbyint(v); }))
NPU_MAP1(Trunc, rounded(x, [](auto v) { return std::trunc(v); }))
NPU_MAP1(Frac, x - std::trunc(x))
NPU_MAP1(Exp, std::exp(x))
NPU_MAP1(Exp2, exp2_of(x))
NPU_MAP1(Expm1, expm1_of(x))
NPU_MAP1(Log, std::log(x))
NPU_MAP1(Log2, log2_of(x))
NPU_MAP1(Log10, std::log10(x))
NPU_MAP1(Log1p, log1p_of(x))
NPU_MAP1(Sin, std::sin(x))
NPU_MAP1(Cos, std::cos(x))
NPU_MAP1(Tan, std::tan(x))
NPU_MAP1(Asin, std::asin(x))
NPU_MAP1(Acos, std::acos(x))
NPU_MAP1(Atan, std::atan(x))
NPU_MAP1(Sinh, std::sinh(x))
NPU_MAP1(Cosh, std::cosh(x))
NPU_MAP1(Tanh, std::tanh(x))
NPU_MAP1(Asinh, std::asinh(x))
NPU_MAP1(Acosh, std::acosh(x))
NPU_MAP1(Atanh, std::atanh(x))
NPU_MAP1(Sinc, sinc_of(x))
NPU_MAP1(Deg2rad, x* T(std::numbers::pi / 180))
NPU_MAP1(Rad2deg, x* T(180 / std::numbers::pi))
NPU_MAP1(BitwiseNot, bitwise_not_of(x))
NPU_MAP(LogicalNot, bool, (T x), x == T(0))
NPU_MAP(IsNan, bool, (T x), is_nan(x))
NPU_MAP(IsInf, bool, (T x), is_inf(x))
NPU_MAP(IsFinite, bool, (T x), !is_nan(x) && !is_inf(x))
NPU_MAP(IsPosInf, bool, (T x), is_inf(x) && x > T(0))
NPU_MAP(IsNegInf, bool, (T x), is_inf(x) && x < T(0))
NPU_MAP(SignBit, bool, (T x), sign_bit(x))
NPU_MAP(Angle, Real<T>, (T x), angle_of(x))
NPU_MAP(RealOf, Real<T>, (T x), real_of(x))
NPU_MAP(Imag, Real<T>, (T x), x.imag())
NPU_MAP1(Conj, conjugate(x))
struct Frexp {
  template <class T>
  NPU_SHARED static Pair<T, std::int32_t> apply(T x, const Scalars<T>&) {
    return frexp_of(x);
  }
};

inline constexpr std::uint64_t kNumberBits = kRealBits | kComplexBits | kC32Bit;
inline constexpr std::uint64_t kElementary =
    kFloatBits | kComplexBits | kPromotes;
inline constexpr std::uint64_t kPromoted = kFloatBits | kPromotes;
inline constexpr std::uint64_t kRoundBits = kFloatBits | kAnyIntBits;
// uint64 is computed in int64: fine where no sign matters.
inline constexpr std::uint64_t kSignedBits =
    (kBoolBit | kAnyIntBits | kFloatBits) & ~NPU_DTYPE_BIT(NPU_U64);
inline constexpr std::uint64_t kLogicBits =
    kBoolBit | kIntBits | kFloatBits | kComplexBits;

#define NPU_UNARY_ELEMENTARY(ROW)                                     \
  ROW(NPU_UNARY_ABS, Abs, kNumberBits)                                \
  ROW(NPU_UNARY_NEG, Neg, kNumberBits)                                \
  ROW(NPU_UNARY_SIGN, Sign, kRealBits | kBoolBit)                     \
  ROW(NPU_UNARY_SGN, Sgn, kNumberBits | kBoolBit)                     \
  ROW(NPU_UNARY_CEIL, Ceil, kRoundBits)                               \
  ROW(NPU_UNARY_FLOOR, Floor, kRoundBits)                             \
  ROW(NPU_UNARY_ROUND, Round, kRoundBits)                             \
  ROW(NPU_UNARY_TRUNC, Trunc, kRoundBits)                             \
  ROW(NPU_UNARY_FRAC, Frac, kFloatBits)                               \
  ROW(NPU_UNARY_SQRT, Sqrt, kElementary)                              \
  ROW(NPU_UNARY_RSQRT, Rsqrt, kElementary)                            \
  ROW(NPU_UNARY_RECIPROCAL, Reciprocal, kElementary)                  \
  ROW(NPU_UNARY_SQUARE, Square, kRealBits | kComplexBits | kPromotes) \
  ROW(NPU_UNARY_EXP, Exp, kElementary)                                \
  ROW(NPU_UNARY_EXP2, Exp2, kElementary)                              \
  ROW(NPU_UNARY_EXPM1, Expm1, kElementary)                            \
  ROW(NPU_UNARY_LOG, Log, kElementary)                                \
  ROW(NPU_UNARY_LOG2, Log2, kElementary)                              \
  ROW(NPU_UNARY_LOG10, Log10, kElementary)                            \
  ROW(NPU_UNARY_LOG1P, Log1p, kElementary)                            \
  ROW(NPU_UNARY_SIN, Sin, kElementary)                                \
  ROW(NPU_UNARY_COS, Cos, kElementary)                                \
  ROW(NPU_UNARY_TAN, Tan, kElementary)                                \
  ROW(NPU_UNARY_ASIN, Asin, kElementary)                              \
  ROW(NPU_UNARY_ACOS, Acos, kElementary)                              \
  ROW(NPU_UNARY_ATAN, Atan, kElementary)                              \
  ROW(NPU_UNARY_SINH, Sinh, kElementary)                              \
  ROW(NPU_UNARY_COSH, Cosh, kElementary)                              \
  ROW(NPU_UNARY_TANH, Tanh, kElementary)                              \
  ROW(NPU_UNARY_ASINH, Asinh, kElementary)                            \
  ROW(NPU_UNARY_ACOSH, Acosh, kElementary)                            \
  ROW(NPU_UNARY_ATANH, Atanh, kElementary)                            \
  ROW(NPU_UNARY_SINC, Sinc, kElementary)                              \
  ROW(NPU_UNARY_DEG2RAD, Deg2rad, kPromoted)                          \
  ROW(NPU_UNARY_RAD2DEG, Rad2deg, kPromoted)                          \
  ROW(NPU_UNARY_BITWISE_NOT, BitwiseNot, kIntBits | kBoolBit)         \
  ROW(NPU_UNARY_LOGICAL_NOT, LogicalNot, kLogicBits)                  \
  ROW(NPU_UNARY_ISNAN, IsNan, kMapBits)                               \
  ROW(NPU_UNARY_ISINF, IsInf, kMapBits)                               \
  ROW(NPU_UNARY_ISFINITE, IsFinite, kMapBits)                         \
  ROW(NPU_UNARY_ISPOSINF, IsPosInf, kSignedBits)                      \
  ROW(NPU_UNARY_ISNEGINF, IsNegInf, kSignedBits)                      \
  ROW(NPU_UNARY_SIGNBIT, SignBit, kSignedBits)                        \
  ROW(NPU_UNARY_ANGLE, Angle, kElementary)                            \
  ROW(NPU_UNARY_REAL, RealOf, kMapBits)                               \
  ROW(NPU_UNARY_IMAG, Imag, kComplexBits | kC32Bit)                   \
  ROW(NPU_UNARY_CONJ, Conj, kMapBits)                                 \
  ROW(NPU_UNARY_FREXP, Frexp, kFloatBits)

}  // namespace npu::formula::unary
