// SPDX-License-Identifier: Apache-2.0
// Arithmetic, bits, logic and comparisons of two elements.
#include <atomic>
#include <cmath>

#include "kernels/map.h"
#include "kernels/map_math.h"

namespace npu::host {
namespace {

// A factor that is not given is 1.
template <class T>
T factor(const Scalars<T>& s) {
  return s.has(0) ? s.a : T(1);
}

NPU_MAP2(Add, add(x, multiply(factor(s), y)))
NPU_MAP2(Sub, add(x, negate(multiply(factor(s), y))))
NPU_MAP2(Mul, multiply(x, y))
NPU_MAP2(Div, divide(x, y))

NPU_MAP(Eq, bool, (T x, T y), x == y)
NPU_MAP(Ne, bool, (T x, T y), x != y)
NPU_MAP(Lt, bool, (T x, T y), x < y)
NPU_MAP(Le, bool, (T x, T y), x <= y)
NPU_MAP(Gt, bool, (T x, T y), x > y)
NPU_MAP(Ge, bool, (T x, T y), x >= y)

constexpr std::uint64_t kC32 = NPU_DTYPE_BIT(NPU_C32);
constexpr std::uint64_t kNumberBits = kRealBits | kComplexBits | kC32;
constexpr std::uint64_t kOrderedBits = kBoolBit | kRealBits;

constexpr MapRow kBinary[] = {
    map_row<NPU_BINARY_ADD, Add, kBoolBit | kNumberBits>(),
    map_row<NPU_BINARY_SUB, Sub, kNumberBits>(),
    map_row<NPU_BINARY_MUL, Mul, kBoolBit | kNumberBits | kWideUnsignedBits>(),
    map_row<NPU_BINARY_DIV, Div, kFloatBits | kComplexBits | kPromotes>(),
};

constexpr MapRow kCompare[] = {
    map_row<NPU_COMPARE_EQ, Eq, kMapBits>(),
    map_row<NPU_COMPARE_NE, Ne, kMapBits>(),
    map_row<NPU_COMPARE_LT, Lt, kOrderedBits>(),
    map_row<NPU_COMPARE_LE, Le, kOrderedBits>(),
    map_row<NPU_COMPARE_GT, Gt, kOrderedBits>(),
    map_row<NPU_COMPARE_GE, Ge, kOrderedBits>(),
};

}  // namespace

const std::span<const MapRow> kBinaryArithmetic = kBinary;
const std::span<const MapRow> kCompareRows = kCompare;

}  // namespace npu::host
