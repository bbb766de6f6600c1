// SPDX-License-Identifier: Apache-2.0
// Helpers of the adapters of batch norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

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

// Statistics of a batch; running values, where given, move.
inline npu_reason run_stats(
    NativeSite& site,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& var,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    double momentum,
    double eps) {
  npu_batch_norm_stats_attrs attrs{.eps = eps, .momentum = momentum};
  return run<build::batch_norm_stats>(
      site,
      mean,
      rstd,
      var,
      running_mean,
      running_var,
      input,
      nullptr,
      nullptr,
      nullptr,
      attrs);
}

}  // namespace npu
