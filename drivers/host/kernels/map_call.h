// SPDX-License-Identifier: Apache-2.0
// An elementwise call whose row was found: the line, its operands, the dtypes
// the line computes with.
#pragma once

#include <algorithm>

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
  // operand is not of that dtype: results are rounded to it before they are
  // stored, inputs before they are used.
  npu_dtype rounds_to[kMaxOperands];
  const npu_scalar* scalars;

  int count() const {
    return n_out + n_in;
  }
  bool rounds() const {
    return std::any_of(rounds_to, rounds_to + count(), [](npu_dtype dtype) {
      return dtype != NPU_ABSENT;
    });
  }
};

// Operands of any stride and dtype (map_strided.cpp).
npu_status run_strided(const MapCall& map);

}  // namespace npu::host
