// SPDX-License-Identifier: Apache-2.0
// What the adapters of losses share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "aten/ops/op.h"

namespace npu::ops {

inline bool is_reduction(std::int64_t reduction) {
  return reduction >= 0 && reduction <= 2;
}

inline at::IntArrayRef loss_sizes(
    const at::Tensor& self, std::int64_t reduction) {
  return reduction == 0 ? self.sizes() : at::IntArrayRef();
}

// An elementwise loss and its gradient: operands of one dtype and size, the
// output laid out as `like`. `a` is the kind's parameter: beta of smooth_l1,
// delta of huber.
struct Loss {
  const at::Tensor& self;
  const at::Tensor& target;
  const at::Tensor& like;
  std::int64_t reduction;
  double a = 0;
  at::Tensor weight = {};
  at::Tensor pos_weight = {};
};
npu_reason run_loss(NativeSite& site, Outputs& out, const Loss& loss);
npu_reason run_loss(NativeSite& site, const at::Tensor& out, const Loss& loss);
npu_reason run_loss_grad(
    NativeSite& site, Outputs& out, const at::Tensor& grad, const Loss& loss);

}  // namespace npu::ops
