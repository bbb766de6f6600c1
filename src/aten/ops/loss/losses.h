// SPDX-License-Identifier: Apache-2.0
// What the adapters of losses share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "aten/ops/operands.h"

namespace npu {

// Operands of an elementwise loss: one dtype, one size, nothing to broadcast.
inline bool fits(const at::Tensor& self, const at::Tensor& target) {
  return on_device(self, target) && is_float(self) &&
         target.scalar_type() == self.scalar_type() &&
         target.sizes() == self.sizes();
}

inline bool is_reduction(std::int64_t reduction) {
  return reduction >= 0 && reduction <= 2;
}

// Of the loss itself, or one number.
inline bool is_gradient(
    const at::Tensor& grad, const at::Tensor& self, std::int64_t reduction) {
  return on_device(grad) && is_reduction(reduction) &&
         grad.scalar_type() == self.scalar_type() &&
         (reduction == 0 ? grad.sizes() == self.sizes() : grad.numel() == 1);
}

inline at::IntArrayRef loss_sizes(
    const at::Tensor& self, std::int64_t reduction) {
  return reduction == 0 ? self.sizes() : at::IntArrayRef();
}

// An output that needs no resizing and overlaps nothing: the CPU rung sees to
// the others.
inline bool is_ready(
    const at::Tensor& out, const at::Tensor& like, at::IntArrayRef sizes) {
  return out.scalar_type() == like.scalar_type() && out.sizes() == sizes &&
         out.is_non_overlapping_and_dense() &&
         !out.storage().is_alias_of(like.storage());
}

// `a` is the kind's parameter: beta of smooth_l1, delta of huber.
npu_reason run_loss(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    double a,
    const at::Tensor& out,
    const at::Tensor& pos_weight = {});

npu_reason run_loss_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    double a,
    const at::Tensor& out);

inline at::Tensor make_like(const at::Tensor& like, at::IntArrayRef sizes) {
  return make_empty(sizes, like.scalar_type(), like.device().index());
}

}  // namespace npu
