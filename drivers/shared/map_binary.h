// SPDX-License-Identifier: Apache-2.0
// Kinds binary and compare: arithmetic, bits, logic and comparisons.
#pragma once

#include "shared/map_math.h"
#include "shared/power.h"

namespace npu::formula::binary {

// ---- division ----

// INT64_MIN / -1 overflows, and traps.
NPU_SHARED inline std::int64_t quotient(std::int64_t x, std::int64_t y) {
  return y == -1 ? negate(x) : x / y;
}
NPU_SHARED inline std::int64_t rest(std::int64_t x, std::int64_t y) {
  return y == -1 ? 0 : x % y;
}

template <class T>
NPU_SHARED T div_trunc_of(T x, T y) {
  if constexpr (kIsInt<T>) {
    return quotient(x, y);
  } else {
    return std::trunc(x / y);
  }
}

// The exact quotient rounded down, not the rounded quotient rounded down.
template <class T>
NPU_SHARED T div_floor_of(T x, T y) {
  if constexpr (kIsInt<T>) {
    const bool below = (x < 0) != (y < 0) && rest(x, y) != 0;
    return quotient(x, y) - (below ? 1 : 0);
  } else {
    if (y == 0) {
      return x / y;
    }
    const T mod = std::fmod(x, y);
    T div = (x - mod) / y;
    if (mod != 0 && (y < 0) != (mod < 0)) {
      div -= 1;
    }
    if (div == 0) {
      return std::copysign(T(0), x / y);
    }
    const T down = std::floor(div);
    return div - down > T(0.5) ? down + 1 : down;
  }
}

template <class T>
NPU_SHARED T fmod_of(T x, T y) {
  if constexpr (kIsInt<T>) {
    return rest(x, y);
  } else {
    return std::fmod(x, y);
  }
}

template <class T>
NPU_SHARED T remainder_of(T x, T y) {
  const T mod = fmod_of(x, y);
  return mod != 0 && (y < 0) != (mod < 0) ? mod + y : mod;
}

// ---- logarithms of sums ----

template <class T>
NPU_SHARED T log_add_exp(T x, T y) {
  if constexpr (kIsComplex<T>) {
    if (is_nan(x) || is_nan(y)) {
      constexpr auto kNan = std::numeric_limits<Real<T>>::quiet_NaN();
      return T(kNan, kNan);
    }
    const bool first = x.real() >= y.real();
    const T high = first ? x : y;
    const T low = first ? y : x;
    if (std::isinf(high.real()) && high.real() == low.real()) {
      return high.real() < 0 ? low : std::log(std::exp(low) + std::exp(high));
    }
    return log1p_of(std::exp(low - high)) + high;
  } else {
    if (std::isinf(x) && x == y) {
      return x;
    }
    return greater(x, y) + std::log1p(std::exp(-std::abs(x - y)));
  }
}

template <class T>
NPU_SHARED T log_add_exp2(T x, T y) {
  if (std::isinf(x) && x == y) {
    return x;
  }
  return greater(x, y) +
         std::log1p(std::exp2(-std::abs(x - y))) * std::numbers::log2e_v<T>;
}

template <class T>
NPU_SHARED T x_times(T x, T y, T (*log)(T)) {
  return is_nan(y) ? y : x == 0 ? T(0) : x * log(y);
}

// ---- integers ----

NPU_SHARED inline std::int64_t gcd_of(std::int64_t x, std::int64_t y) {
  x = absolute(x);
  y = absolute(y);
  while (x != 0) {
    const std::int64_t next = rest(y, x);
    y = x;
    x = next;
  }
  return y;
}

NPU_SHARED inline std::int64_t lcm_of(std::int64_t x, std::int64_t y) {
  const std::int64_t g = gcd_of(x, y);
  return g == 0 ? 0 : absolute(multiply(quotient(x, g), y));
}

// Counts outside the width shift everything out.
NPU_SHARED inline std::int64_t shifted_left(std::int64_t x, std::int64_t by) {
  return by < 0 || by > 63
             ? 0
             : static_cast<std::int64_t>(static_cast<std::uint64_t>(x) << by);
}
NPU_SHARED inline std::int64_t shifted_right(std::int64_t x, std::int64_t by) {
  return x >> (by < 0 || by > 63 ? 63 : by);
}

template <class T>
NPU_SHARED T ldexp_of(T x, T y) {
  return multiply(x, power(T(2), y));
}

// ---- operators ----

NPU_MAP_DIVIDES(DivTrunc, div_trunc_of(x, y))
NPU_MAP_DIVIDES(DivFloor, div_floor_of(x, y))
NPU_MAP_DIVIDES(Fmod, fmod_of(x, y))
NPU_MAP_DIVIDES(Remainder, remainder_of(x, y))
NPU_MAP2(Pow, power(x, y))
NPU_MAP2(Atan2, std::atan2(x, y))
NPU_MAP2(Fmax, is_nan(x) || x < y ? y : x)
NPU_MAP2(Fmin, is_nan(x) || y < x ? y : x)
NPU_MAP2(Hypot, std::hypot(x, y))
NPU_MAP2(Copysign, std::copysign(x, y))
NPU_MAP2(Nextafter, std::nextafter(x, y))
NPU_MAP2(Ldexp, ldexp_of(x, y))
NPU_MAP2(Logaddexp, log_add_exp(x, y))
NPU_MAP2(Logaddexp2, log_add_exp2(x, y))
NPU_MAP2(Xlogy, x_times<T>(x, y, [](T v) { return std::log(v); }))
NPU_MAP2(Xlog1py, x_times<T>(x, y, [](T v) { return std::log1p(v); }))
NPU_MAP2(Heaviside, x == T(0) ? y : T(x > T(0)))
NPU_MAP2(Gcd, gcd_of(x, y))
NPU_MAP2(Lcm, lcm_of(x, y))
NPU_MAP2(BitwiseAnd, x& y)
NPU_MAP2(BitwiseOr, x | y)
NPU_MAP2(BitwiseXor, x ^ y)
NPU_MAP2(ShiftLeft, shifted_left(x, y))
NPU_MAP2(ShiftRight, shifted_right(x, y))
NPU_MAP(LogicalAnd, bool, (T x, T y), x != T(0) && y != T(0))
NPU_MAP(LogicalOr, bool, (T x, T y), x != T(0) || y != T(0))
NPU_MAP(LogicalXor, bool, (T x, T y), (x != T(0)) != (y != T(0)))
NPU_MAP(MakeComplex, Complex<T>, (T x, T y), Complex<T>(x, y))
NPU_MAP(
    Polar, Complex<T>, (T x, T y), Complex<T>(x* std::cos(y), x* std::sin(y)))
NPU_MAP2(MaskedScale, y == T(0) ? T(0) : multiply(x, s.a))

inline constexpr std::uint64_t kNumberBits = kRealBits | kComplexBits | kC32Bit;
inline constexpr std::uint64_t kOrderedBits = kBoolBit | kRealBits;
inline constexpr std::uint64_t kBits = kBoolBit | kAnyIntBits;
inline constexpr std::uint64_t kPromoted = kFloatBits | kPromotes;
inline constexpr std::uint64_t kElementary =
    kFloatBits | kComplexBits | kPromotes;
inline constexpr std::uint64_t kLogicBits =
    kBoolBit | kIntBits | kFloatBits | kComplexBits;

#define NPU_BINARY_ARITHMETIC(ROW)                                     \
  ROW(NPU_BINARY_ADD, Add, kBoolBit | kNumberBits)                     \
  ROW(NPU_BINARY_SUB, Sub, kNumberBits)                                \
  ROW(NPU_BINARY_MUL, Mul, kBoolBit | kNumberBits | kWideUnsignedBits) \
  ROW(NPU_BINARY_DIV, Div, kElementary)                                \
  ROW(NPU_BINARY_DIV_TRUNC, DivTrunc, kRealBits)                       \
  ROW(NPU_BINARY_DIV_FLOOR, DivFloor, kRealBits)                       \
  ROW(NPU_BINARY_FMOD, Fmod, kRealBits)                                \
  ROW(NPU_BINARY_REMAINDER, Remainder, kRealBits)                      \
  ROW(NPU_BINARY_POW, Pow, kRealBits | kComplexBits)                   \
  ROW(NPU_BINARY_ATAN2, Atan2, kPromoted)                              \
  ROW(NPU_BINARY_MAXIMUM, Maximum, kOrderedBits)                       \
  ROW(NPU_BINARY_MINIMUM, Minimum, kOrderedBits)                       \
  ROW(NPU_BINARY_FMAX, Fmax, kOrderedBits)                             \
  ROW(NPU_BINARY_FMIN, Fmin, kOrderedBits)                             \
  ROW(NPU_BINARY_HYPOT, Hypot, kFloatBits)                             \
  ROW(NPU_BINARY_COPYSIGN, Copysign, kPromoted)                        \
  ROW(NPU_BINARY_NEXTAFTER, Nextafter, kWideBits)                      \
  ROW(NPU_BINARY_LDEXP, Ldexp, kElementary)                            \
  ROW(NPU_BINARY_LOGADDEXP, Logaddexp, kFloatBits | kComplexBits)      \
  ROW(NPU_BINARY_LOGADDEXP2, Logaddexp2, kFloatBits)                   \
  ROW(NPU_BINARY_XLOGY, Xlogy, kPromoted)                              \
  ROW(NPU_BINARY_XLOG1PY, Xlog1py, kPromoted)                          \
  ROW(NPU_BINARY_HEAVISIDE, Heaviside, kOrderedBits)                   \
  ROW(NPU_BINARY_GCD, Gcd, kIntBits)                                   \
  ROW(NPU_BINARY_LCM, Lcm, kIntBits)                                   \
  ROW(NPU_BINARY_BITWISE_AND, BitwiseAnd, kBits)                       \
  ROW(NPU_BINARY_BITWISE_OR, BitwiseOr, kBits)                         \
  ROW(NPU_BINARY_BITWISE_XOR, BitwiseXor, kBits)                       \
  ROW(NPU_BINARY_SHIFT_LEFT, ShiftLeft, kIntBits)                      \
  ROW(NPU_BINARY_SHIFT_RIGHT, ShiftRight, kIntBits)                    \
  ROW(NPU_BINARY_LOGICAL_AND, LogicalAnd, kLogicBits)                  \
  ROW(NPU_BINARY_LOGICAL_OR, LogicalOr, kLogicBits)                    \
  ROW(NPU_BINARY_LOGICAL_XOR, LogicalXor, kLogicBits)                  \
  ROW(NPU_BINARY_COMPLEX, MakeComplex, kFloatBits)                     \
  ROW(NPU_BINARY_POLAR, Polar, kWideBits)                              \
  ROW(NPU_BINARY_LERP, LerpScalar, kFloatBits | kComplexBits)          \
  ROW(NPU_BINARY_MASKED_SCALE, MaskedScale, kElementary)               \
  ROW(NPU_BINARY_SQUARED_DIFFERENCE, SquaredDifference, kNumberBits)

#define NPU_COMPARE_ROWS(ROW)           \
  ROW(NPU_COMPARE_EQ, Eq, kMapBits)     \
  ROW(NPU_COMPARE_NE, Ne, kMapBits)     \
  ROW(NPU_COMPARE_LT, Lt, kOrderedBits) \
  ROW(NPU_COMPARE_LE, Le, kOrderedBits) \
  ROW(NPU_COMPARE_GT, Gt, kOrderedBits) \
  ROW(NPU_COMPARE_GE, Ge, kOrderedBits)

}  // namespace npu::formula::binary
