// SPDX-License-Identifier: Apache-2.0
// Batch norm's four kinds, as functions that say whether the driver did it.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/ladder/native.h"

namespace npu {

struct BatchStats {
  at::Tensor mean;
  at::Tensor rstd;
  at::Tensor var;  // undefined: not wanted
  at::Tensor running_mean;
  at::Tensor running_var;
};

struct BatchGrads {
  at::Tensor sum_grad;
  at::Tensor sum_grad_in;
  at::Tensor weight;
  at::Tensor bias;
};

// Dimension 1 is the channel's, and nothing is empty.
bool is_channel_batch(const at::Tensor& input);

// One value per channel (or `size` of them), and an output for `input`.
at::Tensor channel_vector(
    const at::Tensor& input, std::int64_t size, c10::ScalarType type);
at::Tensor empty_image(const at::Tensor& input);

// Statistics of several batches together, from `means` and `rstds` (batches,
// channels) of `counts` elements each. Fills what is defined in `stats`.
npu_reason run_gather(
    NativeSite& site,
    const at::Tensor& means,
    const at::Tensor& rstds,
    const at::Tensor& counts,
    double momentum,
    double eps,
    const BatchStats& stats);

// Fills what is defined in `stats`.
npu_reason run_stats(
    NativeSite& site,
    const at::Tensor& input,
    double momentum,
    double eps,
    const BatchStats& stats);
npu_reason run_apply(
    NativeSite& site,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& scale,
    const at::Tensor& weight,
    const at::Tensor& bias,
    double eps,
    const at::Tensor& out);
npu_reason run_grad_reduce(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const BatchGrads& grads);
npu_reason run_grad_apply(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    const at::Tensor& sum_grad,
    const at::Tensor& sum_grad_in,
    const at::Tensor& counts,
    const at::Tensor& out);

}  // namespace npu
