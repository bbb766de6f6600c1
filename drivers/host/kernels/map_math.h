// SPDX-License-Identifier: Apache-2.0
// Small functions that mean the same for every compute type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/map.h"

namespace npu::host {

template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T>
inline constexpr bool kIsInt = std::is_same_v<T, std::int64_t>;

#define NPU_MAP_FN [[gnu::always_inline]] inline

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
  if constexpr (kIsFloat<T>) {
    return std::fma(a, b, c);
  } else {
    return add(multiply(a, b), c);
  }
}

// Complex numbers are scaled by the larger part of y against overflow.
template <class T>
NPU_MAP_FN T divide(T x, T y) {
  if constexpr (kIsComplex<T>) {
    using R = Real<T>;
    const R re = y.real();
    const R im = y.imag();
    if (std::abs(re) >= std::abs(im)) {
      if (re == 0 && im == 0) {
        return T(x.real() / std::abs(re), x.imag() / std::abs(im));
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
NPU_MAP_FN Real<T> absolute(T x) {
  if constexpr (kIsComplex<T> || kIsFloat<T>) {
    return std::abs(x);
  } else {
    return x < T(0) ? negate(x) : x;
  }
}

template <class T>
NPU_MAP_FN bool is_nan(T x) {
  if constexpr (kIsComplex<T>) {
    return std::isnan(x.real()) || std::isnan(x.imag());
  } else {
    return x != x;
  }
}

template <class T>
NPU_MAP_FN T log1p_of(T x) {
  if constexpr (kIsComplex<T>) {
    // |1 + x|^2 = 1 + re (re + 2) + im^2, without losing small parts.
    const Real<T> re = x.real();
    const Real<T> im = x.imag();
    const Real<T> angle = std::atan2(im, 1 + re);
    if (std::abs(re) + std::abs(im) > Real<T>(0.5)) {
      return T(std::log(std::abs(T(1) + x)), angle);
    }
    return T(std::log1p(re * (re + 2) + im * im) / 2, angle);
  } else {
    return std::log1p(x);
  }
}

template <class T>
NPU_MAP_FN bool is_inf(T x) {
  if constexpr (kIsComplex<T>) {
    return std::isinf(x.real()) || std::isinf(x.imag());
  } else if constexpr (kIsFloat<T>) {
    return std::isinf(x);
  } else {
    return false;
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

template <class T>
NPU_MAP_FN T conjugate(T x) {
  if constexpr (kIsComplex<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}

template <class T>
NPU_MAP_FN T sigmoid(T x) {
  return divide(T(1), T(1) + std::exp(-x));
}

// a + weight * (b - a), from the nearer end.
template <class T>
NPU_MAP_FN T interpolate(T a, T b, T weight) {
  return absolute(weight) < Real<T>(0.5)
             ? multiply_add(weight, b - a, a)
             : multiply_add(weight - T(1), b - a, b);
}

}  // namespace npu::host
