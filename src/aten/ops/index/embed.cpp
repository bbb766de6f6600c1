// SPDX-License-Identifier: Apache-2.0
// Gradients of embeddings, bags of them, and their renormalisation.
#include "aten/ops/op.h"
#include "attempts/index.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

enum Mode : std::int64_t { kSum, kMean, kMax };  // as PyTorch numbers them

}  // namespace

// ---- embedding ----

npu_reason embedding_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& indices,
    std::int64_t num_weights,
    std::int64_t padding_index,
    bool scale_by_frequency) {
  if (!is_index(indices) || grad.dim() == 0 || num_weights <= 0 ||
      indices.numel() == 0 || grad.size(-1) == 0 ||
      grad.numel() != indices.numel() * grad.size(-1)) {
    return kLeaveToCpu;
  }
  const at::Tensor& result =
      set_output(out, 0, {num_weights, grad.size(-1)}, grad);
  npu_embedding_grad_attrs attrs{};
  attrs.padding_index = padding_index;
  attrs.scale_by_frequency = scale_by_frequency ? 1 : 0;
  Call call = site.call();
  build::embedding_grad(
      call, to_operand(result), to_operand(grad), to_operand(indices), attrs);
  return run_checked(site, call, grad, IndexError::kOurs);
}

npu_reason embedding_renorm(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& indices,
    double max_norm,
    double norm_type) {
  if (!is_index(indices) || self.dim() != 2 || indices.numel() == 0 ||
      self.numel() == 0) {
    return kLeaveToCpu;
  }
  npu_embedding_renorm_attrs attrs{};
  attrs.max_norm = max_norm;
  attrs.norm_type = norm_type;
  Call call = site.call();
  build::embedding_renorm(
      call, to_operand(out.at(0)), to_operand(indices), attrs);
  return run_checked(site, call, self, IndexError::kOurs);
}

// ---- embedding_bag ----

npu_reason embedding_bag(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offsets,
    bool /*scale_by_frequency*/,
    std::int64_t mode,
    bool /*sparse*/,
    const std::optional<at::Tensor>& sample_weights,
    bool include_last_offset,
    std::int64_t padding_index) {
  const at::Tensor& scales = or_undefined(sample_weights);
  const std::int64_t bags = offsets.numel() - (include_last_offset ? 1 : 0);
  if (weight.dim() != 2 || indices.dim() != 1 || offsets.dim() != 1 ||
      !is_index(indices) || offsets.scalar_type() != indices.scalar_type() ||
      bags <= 0 || indices.numel() == 0 || weight.numel() == 0 ||
      (scales.defined() && (mode != kSum || scales.sizes() != indices.sizes() ||
                            scales.scalar_type() != weight.scalar_type()))) {
    return kLeaveToCpu;
  }
  const std::int64_t width = weight.size(1);
  const at::Tensor& result = set_output(out, 0, {bags, width}, weight);
  const at::Tensor& offset2bag = set_output(out, 1, indices.sizes(), indices);
  const at::Tensor& bag_size = set_output(out, 2, {bags}, indices);
  const at::Tensor& max_indices =
      mode == kMax ? set_output(out, 3, {bags, width}, indices)
                   : set_output(out, 3, {bags}, indices);
  npu_embedding_bag_attrs attrs{};
  attrs.padding_index = padding_index;
  attrs.include_last_offset = include_last_offset ? 1 : 0;
  Call call = site.call();
  build::embedding_bag(
      call,
      to_operand(result),
      MaybeOperand(offset2bag),
      MaybeOperand(bag_size),
      MaybeOperand(mode == kMax ? max_indices : at::Tensor()),
      to_operand(weight),
      to_operand(indices),
      to_operand(offsets),
      MaybeOperand(scales),
      attrs);
  return run_checked(site, call, weight);
}

npu_reason bag_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& indices,
    const at::Tensor& offset2bag,
    const at::Tensor& bag_size,
    const at::Tensor& max_indices,
    std::int64_t num_weights,
    bool scale_by_frequency,
    std::int64_t mode,
    const std::optional<at::Tensor>& sample_weights,
    std::int64_t padding_index) {
  const at::Tensor& scales = or_undefined(sample_weights);
  if (grad.dim() != 2 || !is_index(indices) || grad.numel() == 0 ||
      indices.numel() == 0 || num_weights <= 0 ||
      offset2bag.sizes() != indices.sizes() ||
      bag_size.numel() != grad.size(0) ||
      (mode == kMax && max_indices.sizes() != grad.sizes())) {
    return kLeaveToCpu;
  }
  const at::Tensor& result =
      set_output(out, 0, {num_weights, grad.size(1)}, grad);
  npu_embedding_bag_grad_attrs attrs{};
  attrs.padding_index = padding_index;
  attrs.scale_by_frequency = scale_by_frequency ? 1 : 0;
  Call call = site.call();
  build::embedding_bag_grad(
      call,
      to_operand(result),
      to_operand(grad),
      to_operand(indices),
      to_operand(offset2bag),
      MaybeOperand(bag_size),
      MaybeOperand(mode == kMax ? max_indices : at::Tensor()),
      MaybeOperand(scales),
      nullptr,
      attrs);
  return run_checked(site, call, grad, IndexError::kOurs);
}

npu_reason bag_backward(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& indices,
    const at::Tensor& /*offsets*/,
    const at::Tensor& offset2bag,
    const at::Tensor& bag_size,
    const at::Tensor& max_indices,
    std::int64_t num_weights,
    bool scale_by_frequency,
    std::int64_t mode,
    bool sparse,
    const std::optional<at::Tensor>& sample_weights,
    std::int64_t padding_index) {
  return sparse ? kLeaveToCpu
                : bag_grad(
                      site,
                      out,
                      grad,
                      indices,
                      offset2bag,
                      bag_size,
                      max_indices,
                      num_weights,
                      scale_by_frequency,
                      mode,
                      sample_weights,
                      padding_index);
}

npu_reason bag_weights_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& /*offsets*/,
    const at::Tensor& offset2bag,
    std::int64_t mode,
    std::int64_t padding_index) {
  if (mode != kSum || grad.dim() != 2 || weight.dim() != 2 ||
      grad.size(1) != weight.size(1) || !is_index(indices) ||
      indices.dim() != 1 || offset2bag.sizes() != indices.sizes() ||
      indices.numel() == 0 || grad.numel() == 0) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(out, 0, indices.sizes(), grad);
  npu_embedding_bag_grad_attrs attrs{};
  attrs.padding_index = padding_index;
  Call call = site.call();
  build::embedding_bag_grad(
      call,
      to_operand(result),
      to_operand(grad),
      to_operand(indices),
      to_operand(offset2bag),
      nullptr,
      nullptr,
      nullptr,
      MaybeOperand(weight),
      attrs);
  return run_checked(site, call, grad, IndexError::kOurs);
}

}  // namespace npu::ops
