// SPDX-License-Identifier: Apache-2.0
// Kind unary_with: one element and up to four scalars.
#include "kernels/map.cuh"
#include "shared/map_scalar.h"

namespace npu::cuda {
namespace {

using namespace formula;
using namespace formula::scalar;

template <class Op>
constexpr bool kHasComplex = false;
template <>
constexpr bool kHasComplex<NanToNum> = true;
template <>
constexpr bool kHasComplex<Affine> = true;

template <class Op>
constexpr bool kFrequent = false;
#define NPU_FREQUENT(op) \
  template <>            \
  constexpr bool kFrequent<op> = true;
NPU_FREQUENT(Pow)
NPU_FREQUENT(Affine)
NPU_FREQUENT(Clamp)
#undef NPU_FREQUENT

const MapRow kRows[] = {NPU_UNARY_WITH_ROWS(NPU_MAP_ROW)};

}  // namespace

const MapRows kUnaryWithRows = kRows;

}  // namespace npu::cuda
