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
  const npu_scalar* scalars;

  int count() const {
    return n_out + n_in;
  }
};

// Operands of any stride and dtype (map_strided.cpp).
npu_status run_strided(const MapCall& map);

}  // namespace npu::host
