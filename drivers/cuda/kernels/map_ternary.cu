// SPDX-License-Identifier: Apache-2.0
// Kind ternary: three elements in, one or two out.
#include "kernels/map.cuh"
#include "shared/map_ternary.h"

namespace npu::cuda {
namespace {

using namespace formula;
using namespace formula::ternary;
using formula::ternary::kNumberBits;  // not the one of kernel.h

template <class Op>
constexpr bool kHasComplex = true;

template <class Op>
constexpr bool kFrequent = false;
#define NPU_FREQUENT(op) \
  template <>            \
  constexpr bool kFrequent<op> = true;
NPU_FREQUENT(Addcmul)
NPU_FREQUENT(Addcdiv)
NPU_FREQUENT(MulAdd)
#undef NPU_FREQUENT

const MapRow kRows[] = {NPU_TERNARY_ROWS(NPU_MAP_ROW)};

}  // namespace

const MapRows kTernaryRows = kRows;

}  // namespace npu::cuda
