// SPDX-License-Identifier: Apache-2.0
// Average and maximum pools, adaptive ones too, and their gradients.
#include <ATen/native/Pool.h>

#include "aten/ops/op.h"
#include "attempts/image.h"
#include "driver/build_call.h"

namespace npu::ops {
namespace {

using at::IntArrayRef;

// ---- attributes ----

// One number stands for all dims, none for `otherwise`.
void spread(
    std::int64_t* to, IntArrayRef from, IntArrayRef otherwise, std::size_t n) {
  const IntArrayRef values = from.empty() ? otherwise : from;
  for (std::size_t k = 0; k < n; ++k) {
    to[k] = values[values.size() == 1 ? 0 : k];
  }
}

template <class Attrs>
Attrs pool_attrs(std::int64_t spatial, bool ceil_mode = false) {
  Attrs attrs{};
  attrs.spatial = spatial;
  attrs.ceil_mode = ceil_mode ? 1 : 0;
  for (int k = 0; k < 3; ++k) {
    attrs.kernel[k] = attrs.stride[k] = attrs.dilation[k] = 1;
  }
  return attrs;
}

// False when the lists have other lengths: CPU has the error for it.
template <class Attrs>
bool set_windows(
    Attrs& attrs,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation) {
  const auto n = static_cast<std::size_t>(attrs.spatial);
  for (const IntArrayRef list : {kernel, padding, dilation}) {
    if (list.size() != 1 && list.size() != n) {
      return false;
    }
  }
  if (stride.size() > 1 && stride.size() != n) {
    return false;
  }
  spread(attrs.kernel, kernel, kernel, n);
  spread(attrs.stride, stride, kernel, n);
  spread(attrs.padding, padding, padding, n);
  spread(attrs.dilation, dilation, dilation, n);
  return true;
}

template <class Attrs>
void set_average(
    Attrs& attrs, bool count_include_pad, std::optional<std::int64_t> divisor) {
  attrs.count_include_pad = count_include_pad ? 1 : 0;
  attrs.divisor = divisor.value_or(0);
}

// Adaptive pools keep the format of two-dimensional images only.
c10::TensorOptions adaptive_options(
    const at::Tensor& self, std::int64_t spatial) {
  return self.options().memory_format(
      spatial == 2 ? self.suggest_memory_format()
                   : at::MemoryFormat::Contiguous);
}

npu_reason run_pool(
    NativeSite& site,
    const at::Tensor& out,
    const at::Tensor& indices,
    const at::Tensor& self,
    npu_pool_attrs& attrs) {
  if (out.numel() == 0 || self.numel() == 0) {
    return NPU_REASON_SIZE;
  }
  return run<build::pool>(site, out, indices, self, attrs);
}

npu_reason run_pool_grad(
    NativeSite& site,
    const at::Tensor& grad_in,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& indices,
    npu_pool_grad_attrs& attrs) {
  if (grad_in.numel() == 0 || grad_out.numel() == 0) {
    return NPU_REASON_SIZE;
  }
  if (!same_dtype(grad_out, self) ||
      (indices.defined() && indices.scalar_type() != at::kLong)) {
    return NPU_REASON_DTYPE;
  }
  if (!has_sizes(indices, grad_out.sizes())) {
    return kLeaveToCpu;
  }
  return run_checked<build::pool_grad, IndexError::kOurs>(
      site, grad_in, grad_out, self, indices, attrs);
}

}  // namespace

// ---- average ----

npu_reason avg_pool(
    NativeSite& site,
    std::int64_t spatial,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    bool ceil_mode,
    bool count_include_pad,
    std::optional<std::int64_t> divisor,
    const at::Tensor& out) {
  auto attrs = pool_attrs<npu_pool_attrs>(spatial, ceil_mode);
  set_average(attrs, count_include_pad, divisor);
  return set_windows(attrs, kernel, stride, padding, {1})
             ? run_pool(site, out, {}, self, attrs)
             : kLeaveToCpu;
}

npu_reason avg_pool_grad(
    NativeSite& site,
    std::int64_t spatial,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    bool ceil_mode,
    bool count_include_pad,
    std::optional<std::int64_t> divisor,
    const at::Tensor& grad_in) {
  auto attrs = pool_attrs<npu_pool_grad_attrs>(spatial, ceil_mode);
  set_average(attrs, count_include_pad, divisor);
  return set_windows(attrs, kernel, stride, padding, {1})
             ? run_pool_grad(site, grad_in, grad_out, self, {}, attrs)
             : kLeaveToCpu;
}

npu_reason adaptive_avg_pool(
    NativeSite& site,
    Outputs& out,
    std::int64_t spatial,
    const at::Tensor& self,
    IntArrayRef output_size) {
  const auto n = static_cast<std::size_t>(spatial);
  if (output_size.size() != n || self.numel() == 0 ||
      (self.dim() != spatial + 1 && self.dim() != spatial + 2)) {
    return kLeaveToCpu;
  }
  at::DimVector sizes(self.sizes());
  for (std::size_t k = 0; k < n; ++k) {
    sizes[sizes.size() - n + k] = output_size[k];
    if (output_size[k] <= 0) {
      return kLeaveToCpu;
    }
  }
  const at::Tensor& given = out.at(0);
  if (given.defined() && !same_dtype(given, self)) {
    return NPU_REASON_DTYPE;
  }
  set_output(out, 0, sizes, adaptive_options(self, spatial));
  auto attrs = pool_attrs<npu_pool_attrs>(spatial);
  return run_pool(site, out.at(0), {}, self, attrs);
}

npu_reason adaptive_avg_pool_grad(
    NativeSite& site,
    Outputs& out,
    std::int64_t spatial,
    const at::Tensor& grad_out,
    const at::Tensor& self) {
  if (grad_out.dim() != self.dim() ||
      (self.dim() != spatial + 1 && self.dim() != spatial + 2) ||
      grad_out.sizes().slice(0, self.dim() - spatial) !=
          self.sizes().slice(0, self.dim() - spatial)) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), adaptive_options(self, spatial));
  auto attrs = pool_attrs<npu_pool_grad_attrs>(spatial);
  return run_pool_grad(site, out.at(0), grad_out, self, {}, attrs);
}

// ---- maximum ----

npu_reason max_pool2d(
    NativeSite& site,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode,
    const at::Tensor& out,
    const at::Tensor& indices) {
  auto attrs = pool_attrs<npu_pool_attrs>(2, ceil_mode);
  return set_windows(attrs, kernel, stride, padding, dilation)
             ? run_pool(site, out, indices, self, attrs)
             : kLeaveToCpu;
}

// Without a meta function: what looks wrong gets CPU's error.
npu_reason max_pool3d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  auto attrs = pool_attrs<npu_pool_attrs>(3, ceil_mode);
  if ((self.dim() != 4 && self.dim() != 5) || self.numel() == 0 ||
      !set_windows(attrs, kernel, stride, padding, dilation)) {
    return kLeaveToCpu;
  }
  at::DimVector sizes(self.sizes());
  for (std::size_t k = 0; k < 3; ++k) {
    std::int64_t& size = sizes[sizes.size() - 3 + k];
    if (attrs.kernel[k] <= 0 || attrs.stride[k] <= 0 ||
        attrs.dilation[k] <= 0 || attrs.padding[k] < 0 ||
        attrs.padding[k] >
            ((attrs.kernel[k] - 1) * attrs.dilation[k] + 1) / 2) {
      return kLeaveToCpu;
    }
    size = at::native::pooling_output_shape<std::int64_t>(
        size,
        attrs.kernel[k],
        attrs.padding[k],
        attrs.stride[k],
        attrs.dilation[k],
        ceil_mode);
    if (size <= 0) {
      return kLeaveToCpu;
    }
  }
  const auto options = image_options(self);
  set_output(out, 0, sizes, options);
  set_output(out, 1, sizes, options.dtype(at::kLong));
  return run_pool(site, out.at(0), out.at(1), self, attrs);
}

npu_reason max_pool3d_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& indices) {
  if (self.dim() != grad_out.dim() || (self.dim() != 4 && self.dim() != 5) ||
      self.size(0) != grad_out.size(0) ||
      (self.dim() == 5 && self.size(1) != grad_out.size(1))) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), image_options(self));
  auto attrs = pool_attrs<npu_pool_grad_attrs>(3);
  return run_pool_grad(site, out.at(0), grad_out, self, indices, attrs);
}

npu_reason adaptive_max_pool(
    NativeSite& site,
    std::int64_t spatial,
    const at::Tensor& self,
    const at::Tensor& out,
    const at::Tensor& indices) {
  auto attrs = pool_attrs<npu_pool_attrs>(spatial);
  return run_pool(site, out, indices, self, attrs);
}

// By the places of the maxima, whatever windows found them.
npu_reason max_pool_grad(
    NativeSite& site,
    std::int64_t spatial,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& indices,
    const at::Tensor& grad_in) {
  auto attrs = pool_attrs<npu_pool_grad_attrs>(spatial);
  return run_pool_grad(site, grad_in, grad_out, self, indices, attrs);
}

}  // namespace npu::ops
