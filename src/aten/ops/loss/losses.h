// SPDX-License-Identifier: Apache-2.0
// Helpers of the adapters of losses.
#pragma once

#include <cstdint>

#include "aten/ops/op.h"

namespace npu::ops {

inline bool is_reduction(std::int64_t reduction) {
  return reduction >= 0 && reduction <= 2;
}

}  // namespace npu::ops
