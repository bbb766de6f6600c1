// SPDX-License-Identifier: Apache-2.0
// Interface comm/1 on NCCL. It has not run on a GPU yet: NPU_CUDA_TRY.
#pragma once

#include "cuda.h"
#include "npu/comm.h"

namespace npu::cuda {

// Null where NCCL cannot be used; the log has said why, once.
const npu_comm_table* comm_interface() noexcept;

}  // namespace npu::cuda
