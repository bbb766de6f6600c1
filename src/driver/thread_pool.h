// SPDX-License-Identifier: Apache-2.0
// parallel_for on plain threads, for programs without PyTorch.
#pragma once

#include <cstdint>

#include "npu/driver.h"

namespace npu {

// Runs fn over [0, n) in pieces of at least `grain`, on as many threads as
// NPU_NUM_THREADS says (default: one per core). Serial inside itself. Returns
// the first error; pieces not yet begun are then left out.
npu_status pool_parallel_for(
    std::int64_t n,
    std::int64_t grain,
    npu_range_fn fn,
    void* context) noexcept;

}  // namespace npu
