// SPDX-License-Identifier: Apache-2.0
// An elementwise call whose row was found: the line, its operands, the dtypes
// the line computes with.
#pragma once

#include "kernels/isa/map.h"
#include "kernels/kernel.h"

namespace npu::host {

inline constexpr int kMaxOperands = 5;  // two outputs, three inputs

struct MapCall {
  MapLineFn fn;
  int n_out;
  int n_in;
  const npu_tensor* operands[kMaxOperands];  // outputs first
  npu_dtype units[kMaxOperands];
  // The compute dtype of the call, where it is narrower than the line's and the
  // output is not of that dtype: results are rounded to it first.
  npu_dtype rounds_to[2];
  const npu_scalar* scalars;

  int count() const {
    return n_out + n_in;
  }
  bool rounds() const {
    return rounds_to[0] != NPU_ABSENT || rounds_to[1] != NPU_ABSENT;
  }
};

// Operands of any stride and dtype (map_strided.cpp).
npu_status run_strided(const MapCall& map);

}  // namespace npu::host
