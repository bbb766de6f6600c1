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

bool fits_embedding_grad(const at::Tensor& grad, const at::Tensor& indices) {
  return grad.dim() != 0 && grad.numel() == indices.numel() * grad.size(-1);
}

npu_reason embedding_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& indices,
    std::int64_t num_weights,
    std::int64_t padding_index,
    bool scale_by_frequency) {
  const at::Tensor& result =
      set_output(out, 0, {num_weights, grad.size(-1)}, grad);
  npu_embedding_grad_attrs attrs{
      .padding_index = padding_index, .scale_by_frequency = scale_by_frequency};
  return run_checked<build::embedding_grad, IndexError::kOurs>(
      site, result, grad, indices, attrs);
}

npu_reason embedding_renorm(
    NativeSite& site,
    Outputs&,
    const at::Tensor& self,
    const at::Tensor& indices,
    double max_norm,
    double norm_type) {
  npu_embedding_renorm_attrs attrs{
      .max_norm = max_norm, .norm_type = norm_type};
  return run_checked<build::embedding_renorm, IndexError::kOurs>(
      site, self, indices, attrs);
}

// ---- embedding_bag ----

npu_reason embedding_bag(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offsets,
    std::int64_t mode,
    const at::Tensor& scales,
    bool include_last_offset,
    std::int64_t padding_index) {
  const std::int64_t bags = offsets.numel() - (include_last_offset ? 1 : 0);
  if (const npu_reason why = first_failed(
          {{is_index(indices) && same_dtype(offsets, indices) &&
                (!scales.defined() || same_dtype(scales, weight)),
            NPU_REASON_DTYPE},
           {bags > 0 && indices.numel() != 0 && weight.numel() != 0,
            NPU_REASON_SIZE},
           {weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1 &&
                has_sizes(scales, indices.sizes()) &&
                (mode == kSum || !scales.defined()),
            kLeaveToCpu}})) {
    return why;
  }
  const std::int64_t width = weight.size(1);
  const at::Tensor& result = set_output(out, 0, {bags, width}, weight);
  const at::Tensor& offset2bag = set_output(out, 1, indices.sizes(), indices);
  const at::Tensor& bag_size = set_output(out, 2, {bags}, indices);
  const at::Tensor& max_indices =
      mode == kMax ? set_output(out, 3, {bags, width}, indices)
                   : set_output(out, 3, {bags}, indices);
  npu_embedding_bag_attrs attrs{
      .padding_index = padding_index,
      .include_last_offset = include_last_offset};
  return run_checked<build::embedding_bag>(
      site,
      result,
      offset2bag,
      bag_size,
      mode == kMax ? max_indices : at::Tensor(),
      weight,
      indices,
      offsets,
      scales,
      attrs);
}

bool fits_bag(
    const at::Tensor& grad,
    const at::Tensor& indices,
    const at::Tensor& offset2bag,
    const at::Tensor& bag_size,
    const at::Tensor& max_indices,
    std::int64_t mode) {
  return grad.dim() == 2 && offset2bag.sizes() == indices.sizes() &&
         bag_size.numel() == grad.size(0) &&
         (mode != kMax || max_indices.sizes() == grad.sizes());
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
    const at::Tensor& scales,
    std::int64_t padding_index) {
  const at::Tensor& result =
      set_output(out, 0, {num_weights, grad.size(1)}, grad);
  npu_embedding_bag_grad_attrs attrs{
      .padding_index = padding_index, .scale_by_frequency = scale_by_frequency};
  return run_checked<build::embedding_bag_grad, IndexError::kOurs>(
      site,
      result,
      grad,
      indices,
      offset2bag,
      bag_size,
      mode == kMax ? max_indices : at::Tensor(),
      scales,
      nullptr,
      attrs);
}

bool fits_bag_weights(
    const at::Tensor& grad,
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offset2bag,
    std::int64_t mode) {
  return mode == kSum && grad.dim() == 2 && weight.dim() == 2 &&
         grad.size(1) == weight.size(1) && indices.dim() == 1 &&
         offset2bag.sizes() == indices.sizes();
}

npu_reason bag_weights_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offset2bag,
    std::int64_t padding_index) {
  const at::Tensor& result = set_output(out, 0, indices.sizes(), grad);
  npu_embedding_bag_grad_attrs attrs{.padding_index = padding_index};
  return run_checked<build::embedding_bag_grad, IndexError::kOurs>(
      site,
      result,
      grad,
      indices,
      offset2bag,
      nullptr,
      nullptr,
      nullptr,
      weight,
      attrs);
}

}  // namespace npu::ops
