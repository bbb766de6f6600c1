// SPDX-License-Identifier: Apache-2.0
// Arithmetic that means the same for every compute type.
//
// Also compiled with instruction sets the machine may lack, and the linker
// keeps one copy of each function that was not inlined: so everything here is
// inlined by force, and calls builtins. Functions of complex numbers are found
// by their argument's type; <complex> is for those who use them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "shared/inline.h"

namespace npu {

#define NPU_MAP_FN NPU_SHARED_INLINE

template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T>
inline constexpr bool kIsInt = std::is_same_v<T, std::int64_t>;
template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <class T>
inline constexpr bool kIsComplex = !std::is_arithmetic_v<T>;

template <class T>
struct RealPart {
  using type = T;
};
template <template <class> class Complex, class T>
struct RealPart<Complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealPart<T>::type;

// Integers wrap: what is computed unsigned may not overflow.
template <class T>
NPU_MAP_FN T add(T x, T y) {
  if constexpr (kIsInt<T>) {
    return static_cast<T>(
        static_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(y));
  } else {
    return static_cast<T>(x + y);
  }
}

template <class T>
NPU_MAP_FN T negate(T x) {
  if constexpr (kIsInt<T>) {
    return static_cast<T>(0 - static_cast<std::uint64_t>(x));
  } else {
    return static_cast<T>(-x);
  }
}

template <class T>
NPU_MAP_FN T subtract(T x, T y) {
  if constexpr (kIsInt<T>) {
    return add(x, negate(y));
  } else {
    return static_cast<T>(x - y);
  }
}

template <class T>
NPU_MAP_FN T multiply(T x, T y) {
  if constexpr (kIsComplex<T>) {
    // As written, not as C's Annex G repairs infinities.
    return T(
        x.real() * y.real() - x.imag() * y.imag(),
        x.real() * y.imag() + x.imag() * y.real());
  } else if constexpr (kIsInt<T>) {
    return static_cast<T>(
        static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
  } else {
    return static_cast<T>(x * y);
  }
}

// a * b + c; floats round once, as PyTorch's CPU loops do.
template <class T>
NPU_MAP_FN T multiply_add(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fmaf(a, b, c);
  } else if constexpr (std::is_same_v<T, double>) {
    return __builtin_fma(a, b, c);
  } else {
    return add(multiply(a, b), c);
  }
}

template <class T>
NPU_MAP_FN Real<T> absolute(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fabsf(x);
  } else if constexpr (std::is_same_v<T, double>) {
    return __builtin_fabs(x);
  } else if constexpr (kIsComplex<T>) {
    return abs(x);
  } else {
    return x < T(0) ? negate(x) : x;
  }
}

template <class T>
NPU_MAP_FN T square_root(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_sqrtf(x);
  } else if constexpr (std::is_same_v<T, double>) {
    return __builtin_sqrt(x);
  } else {
    return sqrt(x);
  }
}

// Complex numbers are scaled by the larger part of y against overflow.
template <class T>
NPU_MAP_FN T divide(T x, T y) {
  if constexpr (kIsComplex<T>) {
    using R = Real<T>;
    const R re = y.real();
    const R im = y.imag();
    if (absolute(re) >= absolute(im)) {
      if (re == 0 && im == 0) {
        return T(x.real() / absolute(re), x.imag() / absolute(im));
      }
      const R ratio = im / re;
      const R scale = R(1) / (re + im * ratio);
      return T(
          (x.real() + x.imag() * ratio) * scale,
          (x.imag() - x.real() * ratio) * scale);
    }
    const R ratio = re / im;
    const R scale = R(1) / (re * ratio + im);
    return T(
        (x.real() * ratio + x.imag()) * scale,
        (x.imag() * ratio - x.real()) * scale);
  } else {
    return static_cast<T>(x / y);
  }
}

template <class T>
NPU_MAP_FN bool is_nan(T x) {
  if constexpr (kIsComplex<T>) {
    return is_nan(x.real()) || is_nan(x.imag());
  } else {
    return x != x;
  }
}

// NaN wins, whichever side it is on.
template <class T>
NPU_MAP_FN T greater(T x, T y) {
  return x > y || is_nan(x) ? x : y;
}
template <class T>
NPU_MAP_FN T lesser(T x, T y) {
  return x < y || is_nan(x) ? x : y;
}

// 0 for NaN.
template <class T>
NPU_MAP_FN T sign_of(T x) {
  return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : T(0);
}

template <class T>
NPU_MAP_FN T conjugate(T x) {
  if constexpr (kIsComplex<T>) {
    return conj(x);
  } else {
    return x;
  }
}

// a + weight * (b - a), from the nearer end as PyTorch does it.
template <class T>
NPU_MAP_FN T interpolate(T a, T b, T weight) {
  return absolute(weight) < Real<T>(0.5)
             ? multiply_add(weight, b - a, a)
             : multiply_add(weight - T(1), b - a, b);
}

}  // namespace npu
