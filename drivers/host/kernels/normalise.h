// SPDX-License-Identifier: Apache-2.0
// Family normalise: its rows, which lie in several files.
#pragma once

#include "kernels/dense.h"

namespace npu::host {

npu_status softmax_caps(std::uint32_t code, npu_op_caps& out);
npu_status softmax_run(const npu_call& call);
npu_status softmax_grad_run(const npu_call& call);

npu_status layer_norm_run(const npu_call& call);
npu_status layer_norm_grad_run(const npu_call& call);
npu_status rms_norm_run(const npu_call& call);
npu_status rms_norm_grad_run(const npu_call& call);
npu_status group_norm_run(const npu_call& call);
npu_status group_norm_grad_run(const npu_call& call);

npu_status batch_norm_stats_run(const npu_call& call);
npu_status batch_norm_apply_run(const npu_call& call);
npu_status batch_norm_grad_reduce_run(const npu_call& call);
npu_status batch_norm_grad_apply_run(const npu_call& call);

}  // namespace npu::host
