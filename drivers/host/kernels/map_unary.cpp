// SPDX-License-Identifier: Apache-2.0
// Arithmetic, rounding, powers and elementary functions of one element.
#include <cmath>

#include "kernels/map.h"
#include "kernels/map_math.h"

namespace npu::host {
namespace {

NPU_MAP(Abs, Real<T>, (T x), absolute(x))
NPU_MAP1(Neg, negate(x))
NPU_MAP1(Sqrt, std::sqrt(x))
NPU_MAP1(Exp, std::exp(x))
NPU_MAP1(Relu, x < T(0) ? T(0) : x)

constexpr std::uint64_t kC32 = NPU_DTYPE_BIT(NPU_C32);
constexpr std::uint64_t kElementary = kFloatBits | kComplexBits | kPromotes;

constexpr MapRow kUnary[] = {
    map_row<NPU_UNARY_ABS, Abs, kRealBits | kComplexBits | kC32>(),
    map_row<NPU_UNARY_NEG, Neg, kRealBits | kComplexBits | kC32>(),
    map_row<NPU_UNARY_SQRT, Sqrt, kElementary>(),
    map_row<NPU_UNARY_EXP, Exp, kElementary>(),
    map_row<NPU_UNARY_RELU, Relu, kRealBits>(),
};

}  // namespace

const std::span<const MapRow> kUnaryArithmetic = kUnary;

}  // namespace npu::host
