// SPDX-License-Identifier: Apache-2.0
// The dtypes of PyTorch and of the contract.
#include "runtime/dtype.h"

#include <array>

namespace npu {
namespace {

using c10::ScalarType;

constexpr std::size_t kScalarTypes =
    static_cast<std::size_t>(ScalarType::NumOptions);

struct Pair {
  ScalarType type;
  npu_dtype dtype;
};

constexpr Pair kPairs[] = {
    {ScalarType::Bool, NPU_BOOL},
    {ScalarType::Byte, NPU_U8},
    {ScalarType::Char, NPU_I8},
    {ScalarType::Short, NPU_I16},
    {ScalarType::Int, NPU_I32},
    {ScalarType::Long, NPU_I64},
    {ScalarType::UInt16, NPU_U16},
    {ScalarType::UInt32, NPU_U32},
    {ScalarType::UInt64, NPU_U64},
    {ScalarType::Half, NPU_F16},
    {ScalarType::BFloat16, NPU_BF16},
    {ScalarType::Float, NPU_F32},
    {ScalarType::Double, NPU_F64},
    {ScalarType::ComplexHalf, NPU_C32},
    {ScalarType::ComplexFloat, NPU_C64},
    {ScalarType::ComplexDouble, NPU_C128},
    {ScalarType::Float8_e4m3fn, NPU_F8_E4M3FN},
    {ScalarType::Float8_e5m2, NPU_F8_E5M2},
    {ScalarType::Float8_e4m3fnuz, NPU_F8_E4M3FNUZ},
    {ScalarType::Float8_e5m2fnuz, NPU_F8_E5M2FNUZ},
    {ScalarType::Float8_e8m0fnu, NPU_F8_E8M0FNU},
    {ScalarType::Float4_e2m1fn_x2, NPU_F4_E2M1FN_X2},
};

constexpr auto kDtypes = [] {
  std::array<npu_dtype, kScalarTypes> table{};
  for (const Pair& pair : kPairs) {
    table[static_cast<std::size_t>(pair.type)] = pair.dtype;
  }
  return table;
}();

}  // namespace

npu_dtype to_npu_dtype(ScalarType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < kScalarTypes ? kDtypes[index] : npu_dtype{NPU_ABSENT};
}

}  // namespace npu
