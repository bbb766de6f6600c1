// SPDX-License-Identifier: Apache-2.0
// constant, reflection and replication padding, and the gradients.
#include <algorithm>

#include "aten/ops/op.h"
#include "attempts/image.h"
#include "driver/build_call.h"

namespace npu::ops {
namespace {

constexpr std::size_t kMostDims = std::size(npu_pad_attrs{}.before);

// PyTorch lists pairs from the last dimension on, the kind from the first.
template <class Attrs>
Attrs pad_attrs(at::IntArrayRef padding) {
  Attrs attrs{};
  const std::size_t n = padding.size() / 2;
  attrs.n = static_cast<std::int64_t>(n);
  for (std::size_t k = 0; k < n; ++k) {
    attrs.before[k] = padding[2 * (n - 1 - k)];
    attrs.after[k] = padding[2 * (n - 1 - k) + 1];
  }
  return attrs;
}

// Sizes after padding; empty when one would not be positive.
at::DimVector padded_sizes(at::IntArrayRef sizes, at::IntArrayRef padding) {
  at::DimVector out(sizes.begin(), sizes.end());
  for (std::size_t k = 0; k < padding.size() / 2; ++k) {
    std::int64_t& size = out[out.size() - 1 - k];
    size += padding[2 * k] + padding[2 * k + 1];
    if (size <= 0) {
      return {};
    }
  }
  return out;
}

npu_reason run_pad(
    NativeSite& site,
    const at::Tensor& out,
    const at::Tensor& self,
    at::IntArrayRef padding,
    const c10::Scalar& value) {
  auto attrs = pad_attrs<npu_pad_attrs>(padding);
  attrs.value = to_npu_scalar(value);
  return run<build::pad>(site, out, self, attrs);
}

npu_reason run_pad_grad(
    NativeSite& site,
    const at::Tensor& grad_in,
    const at::Tensor& grad_out,
    at::IntArrayRef padding) {
  auto attrs = pad_attrs<npu_pad_grad_attrs>(padding);
  return run<build::pad_grad>(site, grad_in, grad_out, attrs);
}

}  // namespace

npu_reason constant_pad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef padding,
    const c10::Scalar& value) {
  // Where nothing is added PyTorch clones a view, which has strides to keep.
  const bool adds = std::any_of(
      padding.begin(), padding.end(), [](std::int64_t n) { return n > 0; });
  if (!adds || padding.size() % 2 != 0 || padding.size() > 2 * kMostDims ||
      padding.size() > 2 * static_cast<std::size_t>(self.dim())) {
    return kLeaveToCpu;
  }
  const at::DimVector sizes = padded_sizes(self.sizes(), padding);
  if (sizes.empty()) {
    return kLeaveToCpu;
  }
  // As an element of the dtype: one that does not fit is an error here.
  const NumberOperand number(value, self);
  set_output(out, 0, sizes, image_options(self));
  return run_pad(site, out.at(0), self, padding, value);
}

// ---- reflection, replication ----

npu_reason pad_structured(
    NativeSite& site,
    const at::Tensor& self,
    at::IntArrayRef padding,
    const at::Tensor& out) {
  return out.numel() == 0 || self.numel() == 0
             ? npu_reason{NPU_REASON_SIZE}
             : run_pad(site, out, self, padding, 0);
}

npu_reason pad_grad_structured(
    NativeSite& site,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    at::IntArrayRef padding,
    const at::Tensor& grad_in) {
  return grad_out.numel() == 0 || self.numel() == 0
             ? npu_reason{NPU_REASON_SIZE}
             : run_pad_grad(site, grad_in, grad_out, padding);
}

// The one without a meta function. What looks wrong gets CPU's error.
npu_reason reflection_pad2d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef padding) {
  if (padding.size() != 4 || self.numel() == 0 ||
      (self.dim() != 3 && self.dim() != 4)) {
    return kLeaveToCpu;
  }
  for (std::size_t k = 0; k < 4; ++k) {
    if (padding[k] >= self.size(-1 - static_cast<std::int64_t>(k / 2))) {
      return kLeaveToCpu;
    }
  }
  const at::DimVector sizes = padded_sizes(self.sizes(), padding);
  if (sizes.empty()) {
    return kLeaveToCpu;
  }
  set_output(out, 0, sizes, image_options(self));
  return run_pad(site, out.at(0), self, padding, 0);
}

// Gradients without a meta function.
npu_reason pad_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    at::IntArrayRef padding) {
  if (padding.size() % 2 != 0 ||
      padding.size() > 2 * static_cast<std::size_t>(self.dim()) ||
      grad_out.sizes() != padded_sizes(self.sizes(), padding) ||
      self.numel() == 0) {
    return kLeaveToCpu;
  }
  if (!same_dtype(grad_out, self)) {
    return NPU_REASON_DTYPE;
  }
  set_output(out, 0, self.sizes(), image_options(self));
  return run_pad_grad(site, out.at(0), grad_out, padding);
}

}  // namespace npu::ops
