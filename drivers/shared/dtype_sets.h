// SPDX-License-Identifier: Apache-2.0
// Sets of dtypes, and the types that elementwise operators compute them in.
#pragma once

#include <cstdint>

#include "npu/op.h"

namespace npu {

inline constexpr std::uint64_t kBoolBit = NPU_DTYPE_BIT(NPU_BOOL);
inline constexpr std::uint64_t kHalfBits =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16);
inline constexpr std::uint64_t kWideBits =
    NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
inline constexpr std::uint64_t kFloatBits = kHalfBits | kWideBits;
inline constexpr std::uint64_t kComplexBits =
    NPU_DTYPE_BIT(NPU_C64) | NPU_DTYPE_BIT(NPU_C128);
// The integers that arithmetic is defined for.
inline constexpr std::uint64_t kIntBits =
    NPU_DTYPE_BIT(NPU_U8) | NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I16) |
    NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
inline constexpr std::uint64_t kWideUnsignedBits =
    NPU_DTYPE_BIT(NPU_U16) | NPU_DTYPE_BIT(NPU_U32) | NPU_DTYPE_BIT(NPU_U64);
inline constexpr std::uint64_t kAnyIntBits = kIntBits | kWideUnsignedBits;
inline constexpr std::uint64_t kC32Bit = NPU_DTYPE_BIT(NPU_C32);
inline constexpr std::uint64_t kRealBits = kFloatBits | kIntBits;
inline constexpr std::uint64_t kMapBits =
    kBoolBit | kAnyIntBits | kFloatBits | kComplexBits | NPU_DTYPE_BIT(NPU_C32);

// Not a dtype: the operator takes integers and bool, and computes them in the
// floating point type that the call names.
inline constexpr std::uint64_t kPromotes = UINT64_C(1) << 63;

enum ComputeType : int {
  kInFloat,
  kInDouble,
  kInComplex64,
  kInComplex128,
  kInInt64,
  kInBool,
  kComputeTypes,
};

// The type a dtype is computed in; -1: none.
inline constexpr int compute_type(npu_dtype dtype) noexcept {
  switch (dtype) {
    case NPU_F16:
    case NPU_BF16:
    case NPU_F32:
      return kInFloat;
    case NPU_F64:
      return kInDouble;
    case NPU_C32:
    case NPU_C64:
      return kInComplex64;
    case NPU_C128:
      return kInComplex128;
    case NPU_BOOL:
      return kInBool;
    default:
      return dtype >= NPU_U8 && dtype <= NPU_U64 ? kInInt64 : -1;
  }
}

inline constexpr npu_dtype kComputeDtype[kComputeTypes] = {
    NPU_F32, NPU_F64, NPU_C64, NPU_C128, NPU_I64, NPU_BOOL};

}  // namespace npu
