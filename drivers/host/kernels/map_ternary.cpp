// SPDX-License-Identifier: Apache-2.0
// Kind ternary: three elements in, one or two out.
#include "kernels/map_math.h"

namespace npu::host {
namespace {

using namespace formula;

template <class T>
bool is_close(T x, T y, const Scalars<T>& s) {
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
  static std::pair<T, T> apply(T x, T y, T z, const Scalars<T>&) {
    return {y > 0 ? x : x * z, y > 0 ? T(0) : x * y};
  }
};
struct GluGrad {
  template <class T>
  static std::pair<T, T> apply(T x, T y, T z, const Scalars<T>&) {
    const T gate = sigmoid(z);
    return {gate * x, (1 - gate) * gate * x * y};
  }
};

constexpr std::uint64_t kNumberBits = kRealBits | kComplexBits | kC32Bit;
constexpr std::uint64_t kFieldBits = kFloatBits | kComplexBits;

constexpr MapRow kRows[] = {
    map_row<NPU_TERNARY_WHERE, Where, kMapBits>(),
    map_row<NPU_TERNARY_ADDCMUL, Addcmul, kNumberBits>(),
    map_row<NPU_TERNARY_ADDCDIV, Addcdiv, kFieldBits>(),
    map_row<NPU_TERNARY_LERP, Lerp, kFieldBits>(),
    map_row<NPU_TERNARY_CLAMP, Clamp, kRealBits>(),
    map_row<NPU_TERNARY_MUL_ADD, MulAdd, kNumberBits>(),
    map_row<NPU_TERNARY_PRELU_GRAD, PreluGrad, kFloatBits>(),
    map_row<NPU_TERNARY_GLU_GRAD, GluGrad, kFloatBits>(),
    map_row<NPU_TERNARY_ISCLOSE, IsClose, kMapBits>(),
};

}  // namespace

const std::span<const MapRow> kTernaryRows = kRows;

}  // namespace npu::host
