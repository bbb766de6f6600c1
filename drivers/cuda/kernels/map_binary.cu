// SPDX-License-Identifier: Apache-2.0
// Kinds binary and compare: arithmetic, bits, logic and comparisons.
#include "kernels/map.cuh"
#include "shared/map_binary.h"

namespace npu::cuda {
namespace {

using namespace formula;
using namespace formula::binary;
using formula::binary::kNumberBits;  // not the one of kernel.h

template <class Op>
constexpr bool kHasComplex = false;
#define NPU_COMPLEX(op) \
  template <>           \
  constexpr bool kHasComplex<op> = true;
NPU_COMPLEX(Add)
NPU_COMPLEX(Sub)
NPU_COMPLEX(Mul)
NPU_COMPLEX(Div)
NPU_COMPLEX(LogicalAnd)
NPU_COMPLEX(LogicalOr)
NPU_COMPLEX(LogicalXor)
NPU_COMPLEX(LerpScalar)
NPU_COMPLEX(MaskedScale)
NPU_COMPLEX(SquaredDifference)
NPU_COMPLEX(Eq)
NPU_COMPLEX(Ne)
#undef NPU_COMPLEX

template <class Op>
constexpr bool kFrequent = false;
#define NPU_FREQUENT(op) \
  template <>            \
  constexpr bool kFrequent<op> = true;
NPU_FREQUENT(Add)
NPU_FREQUENT(Sub)
NPU_FREQUENT(Mul)
NPU_FREQUENT(Div)
NPU_FREQUENT(Maximum)
NPU_FREQUENT(Minimum)
NPU_FREQUENT(Eq)
NPU_FREQUENT(Ne)
NPU_FREQUENT(Lt)
NPU_FREQUENT(Le)
NPU_FREQUENT(Gt)
NPU_FREQUENT(Ge)
NPU_FREQUENT(MaskedScale)
#undef NPU_FREQUENT

const MapRow kBinary[] = {NPU_BINARY_ARITHMETIC(NPU_MAP_ROW)};
const MapRow kCompare[] = {NPU_COMPARE_ROWS(NPU_MAP_ROW)};

}  // namespace

const MapRows kBinaryArithmetic = kBinary;
const MapRows kCompareRows = kCompare;

}  // namespace npu::cuda
