// SPDX-License-Identifier: Apache-2.0
// Powers, for tensors and for scalars.
#pragma once

#include "shared/map_math.h"

namespace npu {

// Integers by squaring; 1 / x^|y| rounds to zero except for 1 and -1.
NPU_SHARED inline std::int64_t integer_power(std::int64_t x, std::int64_t y) {
  if (y < 0) {
    return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  }
  std::int64_t result = 1;
  for (; y > 0; y /= 2) {
    if (y % 2 != 0) {
      result = multiply(result, x);
    }
    x = multiply(x, x);
  }
  return result;
}

template <class T>
NPU_SHARED T power(T x, T y) {
  if constexpr (kIsInt<T>) {
    return integer_power(x, y);
  } else if constexpr (kIsComplex<T>) {
    return y == T(2) ? multiply(x, x) : std::pow(x, y);
  } else {
    return y == T(2) ? x * x : std::pow(x, y);
  }
}

}  // namespace npu
