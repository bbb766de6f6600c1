// SPDX-License-Identifier: Apache-2.0
// Functions of <cmath> that mean the same for every compute type; arithmetic
// is in arithmetic.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "shared/complex.h"
#include "shared/dtype_sets.h"
#include "shared/map_pair.h"

namespace npu {

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

template <class T>
NPU_MAP_FN T sigmoid(T x) {
  return divide(T(1), T(1) + std::exp(-x));
}

}  // namespace npu
