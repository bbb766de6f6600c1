// SPDX-License-Identifier: Apache-2.0
// Kind unary: special functions that CUDA has. float is computed through
// double, as on the host, where CUDA's float form is less exact.
#include "kernels/map.cuh"
#include "shared/map_math.h"

namespace npu::cuda {
namespace {

template <class T>
constexpr bool kHasComplex = false;

#define NPU_WIDE(name, function)                               \
  template <class T>                                           \
  __host__ __device__ T name(T x) {                            \
    return static_cast<T>(::function(static_cast<double>(x))); \
  }
NPU_WIDE(erfcx_of, erfcx)
NPU_WIDE(erfinv_of, erfinv)
NPU_WIDE(log_gamma_of, lgamma)
#undef NPU_WIDE

template <class T>
__host__ __device__ T entropy(T x) {
  const T least = -std::numeric_limits<T>::infinity();
  return x > 0 ? -x * std::log(x) : x == 0 ? T(0) : x < 0 ? least : x;
}

NPU_MAP1(Erf, std::erf(x))
NPU_MAP1(Erfc, std::erfc(x))
NPU_MAP1(Erfcx, erfcx_of(x))
NPU_MAP1(Erfinv, erfinv_of(x))
NPU_MAP1(Lgamma, log_gamma_of(x))
NPU_MAP1(Entr, entropy(x))

constexpr std::uint64_t kAll = kFloatBits | kPromotes;
constexpr std::uint64_t kWide = kWideBits | kPromotes;

template <class Op>
constexpr bool kFrequent = false;

const MapRow kRows[] = {NPU_MAP_ROW(NPU_UNARY_ERF, Erf, kAll) NPU_MAP_ROW(
    NPU_UNARY_ERFC, Erfc, kAll) NPU_MAP_ROW(NPU_UNARY_ERFCX, Erfcx, kWide)
                            NPU_MAP_ROW(NPU_UNARY_ERFINV, Erfinv, kAll)
                                NPU_MAP_ROW(NPU_UNARY_LGAMMA, Lgamma, kAll)
                                    NPU_MAP_ROW(NPU_UNARY_ENTR, Entr, kAll)};

}  // namespace

const MapRows kUnarySpecial = kRows;

}  // namespace npu::cuda
