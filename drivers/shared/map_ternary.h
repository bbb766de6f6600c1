// SPDX-License-Identifier: Apache-2.0
// Kind ternary: three elements in, one or two out.
#pragma once

#include "shared/map_math.h"

namespace npu::formula::ternary {

template <class T>
NPU_SHARED bool is_close(T x, T y, const Scalars<T>& s) {
  using R = std::conditional_t<kIsFloat<Real<T>>, Real<T>, double>;
  if (x == y || (s.raw[2].i != 0 && is_nan(x) && is_nan(y))) {
    return true;
  }
  if (is_inf(x) || is_inf(y) || is_nan(x) || is_nan(y)) {
    return false;
  }
  const R limit =
      static_cast<R>(s.raw[1].re) +
      std::abs(static_cast<R>(s.raw[0].re) * static_cast<R>(absolute(y)));
  if constexpr (kIsComplex<T>) {
    return absolute(x - y) <= limit;
  } else {
    return std::abs(static_cast<R>(x) - static_cast<R>(y)) <= limit;
  }
}

NPU_MAP3(Clamp, lesser(greater(x, y), z))
NPU_MAP(IsClose, bool, (T x, T y), is_close(x, y, s))

// Gradients of an input and of a weight, of one half and of the other.
struct PreluGrad {
  template <class T>
  NPU_SHARED static Pair<T, T> apply(T x, T y, T z, const Scalars<T>&) {
    return {y > 0 ? x : x * z, y > 0 ? T(0) : x * y};
  }
};
struct GluGrad {
  template <class T>
  NPU_SHARED static Pair<T, T> apply(T x, T y, T z, const Scalars<T>&) {
    const T gate = sigmoid(z);
    return {gate * x, (1 - gate) * gate * x * y};
  }
};

inline constexpr std::uint64_t kNumberBits = kRealBits | kComplexBits | kC32Bit;
inline constexpr std::uint64_t kFieldBits = kFloatBits | kComplexBits;

#define NPU_TERNARY_ROWS(ROW)                        \
  ROW(NPU_TERNARY_WHERE, Where, kMapBits)            \
  ROW(NPU_TERNARY_ADDCMUL, Addcmul, kNumberBits)     \
  ROW(NPU_TERNARY_ADDCDIV, Addcdiv, kFieldBits)      \
  ROW(NPU_TERNARY_LERP, Lerp, kFieldBits)            \
  ROW(NPU_TERNARY_CLAMP, Clamp, kRealBits)           \
  ROW(NPU_TERNARY_MUL_ADD, MulAdd, kNumberBits)      \
  ROW(NPU_TERNARY_PRELU_GRAD, PreluGrad, kFloatBits) \
  ROW(NPU_TERNARY_GLU_GRAD, GluGrad, kFloatBits)     \
  ROW(NPU_TERNARY_ISCLOSE, IsClose, kMapBits)

}  // namespace npu::formula::ternary
