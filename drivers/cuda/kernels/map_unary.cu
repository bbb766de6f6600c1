// SPDX-License-Identifier: Apache-2.0
// Kind unary: arithmetic, rounding, elementary functions, predicates.
#include "kernels/map.cuh"
#include "shared/map_unary.h"

namespace npu::cuda {
namespace {

using namespace formula;
using namespace formula::unary;
using formula::unary::kNumberBits;  // not the one of kernel.h

template <class Op>
constexpr bool kHasComplex = false;
#define NPU_COMPLEX(op) \
  template <>           \
  constexpr bool kHasComplex<op> = true;
NPU_COMPLEX(Abs)
NPU_COMPLEX(Neg)
NPU_COMPLEX(Reciprocal)
NPU_COMPLEX(Square)
NPU_COMPLEX(LogicalNot)
NPU_COMPLEX(IsNan)
NPU_COMPLEX(IsInf)
NPU_COMPLEX(IsFinite)
NPU_COMPLEX(RealOf)
NPU_COMPLEX(Imag)
NPU_COMPLEX(Conj)
NPU_COMPLEX(Angle)
#undef NPU_COMPLEX

template <class Op>
constexpr bool kFrequent = false;
#define NPU_FREQUENT(op) \
  template <>            \
  constexpr bool kFrequent<op> = true;
NPU_FREQUENT(Abs)
NPU_FREQUENT(Neg)
NPU_FREQUENT(Exp)
NPU_FREQUENT(Log)
NPU_FREQUENT(Sqrt)
NPU_FREQUENT(Rsqrt)
NPU_FREQUENT(Square)
NPU_FREQUENT(Tanh)
NPU_FREQUENT(Sin)
NPU_FREQUENT(Cos)
NPU_FREQUENT(Reciprocal)
NPU_FREQUENT(LogicalNot)
#undef NPU_FREQUENT

const MapRow kRows[] = {NPU_UNARY_ELEMENTARY(NPU_MAP_ROW)};

}  // namespace

const MapRows kUnaryElementary = kRows;

}  // namespace npu::cuda
