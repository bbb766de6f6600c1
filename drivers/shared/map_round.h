// SPDX-License-Identifier: Apache-2.0
// What the result of an elementwise formula is rounded to before it is stored.
#pragma once

#include "shared/dtype.h"

namespace npu {

// What a result of `unit` is rounded to when the call computes in `dtype`;
// NPU_ABSENT when storing it as `out` is enough. Half types are computed in
// float and integers in int64, but what does not fit the dtype must not show in
// a wider output.
NPU_SHARED_CONSTEXPR npu_dtype
map_rounding(npu_dtype unit, npu_dtype dtype, npu_dtype out) {
  npu_dtype narrow = NPU_ABSENT;
  if (unit == NPU_F32) {
    narrow = dtype == NPU_C32 ? npu_dtype{NPU_F16} : dtype;
  } else if (unit == NPU_C64) {
    // complex and polar make a complex result of real operands.
    const bool half = dtype == NPU_C32 || dtype == NPU_F16;
    narrow = half ? npu_dtype{NPU_C32} : npu_dtype{NPU_ABSENT};
  } else if (unit == NPU_I64) {
    narrow = dtype;
  }
  const bool narrower =
      narrow != NPU_ABSENT && element_bytes(narrow) < element_bytes(unit);
  return narrower && narrow != out ? narrow : npu_dtype{NPU_ABSENT};
}

}  // namespace npu
