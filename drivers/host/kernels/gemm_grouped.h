// SPDX-License-Identifier: Apache-2.0
// Kind gemm_grouped, a row of family gemm in a file of its own.
#pragma once

#include "kernels/kernel.h"

namespace npu::host {

npu_status gemm_grouped_caps(std::uint32_t code, npu_op_caps& out);
npu_status gemm_grouped_run(const npu_call& call);

}  // namespace npu::host
