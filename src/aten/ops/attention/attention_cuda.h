// SPDX-License-Identifier: Apache-2.0
// CUDA's fused attention kernels on npu tensors, for devices whose twin is
// CUDA's.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "aten/ops/attention/attention_direct.h"

namespace npu::cuda_attention {

// True when forward() and backward() serve the call: flash attention for halves
// without a mask, else memory-efficient attention. Both need aligned heads, and
// the user may have switched either off. Depends on nothing but the operands
// and the user's switches. The call has 4-dimensional operands of one dtype.
bool takes(const FlashInputs& in);

// The output, as the kernel laid it out, and the contiguous logsumexp (batch,
// heads, rows).
std::tuple<at::Tensor, at::Tensor> forward(const FlashInputs& in);

// The gradients of query, key and value, as the kernel laid them out.
std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const FlashInputs& in, const FlashForward& forward);

}  // namespace npu::cuda_attention
