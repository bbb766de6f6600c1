// SPDX-License-Identifier: Apache-2.0
// What an elementwise call computes in, and what is rounded to what: the same
// in every driver.
#pragma once

#include "npu/kinds.h"
#include "npu/op.h"
#include "shared/dtype.h"
#include "shared/map_round.h"

namespace npu {

inline npu_dtype dtype_computed(const npu_call& call, const npu_tensor* in) {
  return call.compute_dtype != NPU_ABSENT ? call.compute_dtype
         : in                             ? in->dtype
                                          : npu_dtype{NPU_ABSENT};
}

// Inputs of another dtype are rounded to a half that the call computes in; a
// number in host memory has the digits it is meant to have.
inline npu_dtype input_rounding(npu_dtype computed, const npu_tensor& in) {
  const bool half = computed == NPU_F16 || computed == NPU_BF16;
  const bool number = (in.flags & NPU_TENSOR_HOST_SCALAR) != 0;
  return half && !number && in.dtype != computed && in.dtype != NPU_BOOL
             ? computed
             : npu_dtype{NPU_ABSENT};
}

// The least and the greatest number of a dtype, as scalars.
inline void set_limits(npu_dtype dtype, npu_scalar& low, npu_scalar& high) {
  const auto set = [&](double least, double most) {
    low = {NPU_SCALAR_FLOAT, 0, 0, least, 0};
    high = {NPU_SCALAR_FLOAT, 0, 0, most, 0};
  };
  const bool is_signed = dtype >= NPU_I8 && dtype <= NPU_I64;
  switch (dtype) {
    case NPU_F16:
    case NPU_C32:
      return set(-65504.0, 65504.0);
    case NPU_BF16:
      return set(-0x1.fep127, 0x1.fep127);
    case NPU_F32:
    case NPU_C64:
      return set(-0x1.fffffep127, 0x1.fffffep127);
    case NPU_F64:
    case NPU_C128:
      return set(-0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023);
    default: {
      const int bits = static_cast<int>(8 * element_bytes(dtype));
      const std::int64_t most =
          static_cast<std::int64_t>(~UINT64_C(0) >> (64 - bits)) >>
          (is_signed && bits < 64 ? 1 : 0);
      const std::int64_t top = bits < 64 ? most : INT64_MAX;
      const std::int64_t bottom = is_signed ? -top - 1 : 0;
      low = {NPU_SCALAR_INT, 0, bottom, static_cast<double>(bottom), 0};
      high = {NPU_SCALAR_INT, 0, top, static_cast<double>(top), 0};
    }
  }
}

// Scalars that unary_with's codes leave to the dtypes; the code that runs.
inline std::uint32_t settle_scalars(
    std::uint32_t code,
    npu_dtype computed,
    npu_dtype out,
    npu_scalar* scalars) {
  if (code == NPU_UNARY_WITH_CAST_CLAMP && out != NPU_ABSENT) {
    set_limits(out, scalars[0], scalars[1]);
    return NPU_UNARY_WITH_CLAMP;
  }
  if (code == NPU_UNARY_WITH_NAN_TO_NUM) {
    npu_scalar low, high;
    set_limits(computed, low, high);
    scalars[1] = scalars[1].kind == NPU_SCALAR_NONE ? high : scalars[1];
    scalars[2] = scalars[2].kind == NPU_SCALAR_NONE ? low : scalars[2];
  }
  return code;
}

}  // namespace npu
