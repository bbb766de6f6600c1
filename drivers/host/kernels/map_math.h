// SPDX-License-Identifier: Apache-2.0
// Small functions that are the same line for every compute type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/map.h"

namespace npu::host {

template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;

// Integers wrap.
template <class T>
[[gnu::always_inline]] inline T multiply(T x, T y) {
  if constexpr (kIsComplex<T>) {
    // As written, not as C's Annex G repairs infinities.
    return T(
        x.real() * y.real() - x.imag() * y.imag(),
        x.real() * y.imag() + x.imag() * y.real());
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return static_cast<T>(
        static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
  } else {
    return static_cast<T>(x * y);
  }
}

template <class T>
[[gnu::always_inline]] inline T add(T x, T y) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return static_cast<T>(
        static_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(y));
  } else {
    return static_cast<T>(x + y);
  }
}

template <class T>
[[gnu::always_inline]] inline T negate(T x) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return static_cast<T>(0 - static_cast<std::uint64_t>(x));
  } else {
    return static_cast<T>(-x);
  }
}

template <class T>
[[gnu::always_inline]] inline Real<T> absolute(T x) {
  if constexpr (kIsComplex<T> || kIsFloat<T>) {
    return std::abs(x);
  } else {
    return x < T(0) ? negate(x) : x;
  }
}

// Complex division, scaled by the larger part of y against overflow.
template <class T>
[[gnu::always_inline]] inline T divide(T x, T y) {
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

}  // namespace npu::host
