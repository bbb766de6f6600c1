// SPDX-License-Identifier: Apache-2.0
// Interface capture/1 on CUDA graphs. It has not run on a GPU yet:
// NPU_CUDA_TRY.
#pragma once

#include "cuda.h"
#include "npu/capture.h"

namespace npu::cuda {

extern const npu_capture capture_table;

// Before a stream goes: a capture that it belongs to ends and is dropped.
void leave_capture(Stream& stream) noexcept;

}  // namespace npu::cuda
