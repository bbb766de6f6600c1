// SPDX-License-Identifier: Apache-2.0
// What the adapters of batch norm share.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/core/factories.h"
#include "aten/ops/op.h"

namespace npu {

// Dimension 1 is the channel's, and nothing is empty.
inline bool is_channel_batch(const at::Tensor& input) {
  return is_float(input) && input.dim() >= 2;
}

// One value per channel; none where it is not wanted.
inline at::Tensor channel_vector(
    const at::Tensor& input, c10::ScalarType type, bool wanted = true) {
  return wanted ? make_empty({input.size(1)}, type, input.device().index())
                : at::Tensor();
}

// A gradient of the input's sizes and dtype.
inline bool is_same_batch(const at::Tensor& grad, const at::Tensor& input) {
  return grad.sizes() == input.sizes() && same_dtype(grad, input);
}

}  // namespace npu
