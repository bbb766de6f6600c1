// SPDX-License-Identifier: Apache-2.0
// What the communicators of the discrete driver reduce, and how.
#pragma once

#include <cstdint>
#include <vector>

#include "discrete.h"
#include "npu/comm.h"

namespace npu::discrete {

inline constexpr uint64_t kFloats =
    NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
inline constexpr uint64_t kReduced = kFloats | NPU_DTYPE_BIT(NPU_U8) |
                                     NPU_DTYPE_BIT(NPU_I32) |
                                     NPU_DTYPE_BIT(NPU_I64);
inline constexpr uint64_t kReductions =  // all but XOR
    (1u << NPU_REDUCTION_XOR) - 1;

// Reduced too, rounded at every hop, with NPU_DISCRETE_COMM_HALVES=1.
uint64_t dtypes_per_hop();

// NPU_DISCRETE_COMM_WRONG asks for this fault.
bool wrong(const char* what);

npu_status check_reduction(npu_dtype dtype, npu_reduction reduction);
// One part of each rank, in order of rank.
void reduce_parts(
    npu_dtype dtype,
    npu_reduction reduction,
    const std::vector<const char*>& parts,
    char* out,
    uint64_t count);

}  // namespace npu::discrete
