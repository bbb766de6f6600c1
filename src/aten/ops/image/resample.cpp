// SPDX-License-Identifier: Apache-2.0
// fractional pools, unpooling, im2col and col2im, grid_sampler.
#include <ATen/core/Tensor.h>
#include <ATen/ops/max_unpool2d_cpu_dispatch.h>

#include <algorithm>

#include "aten/ops/op.h"
#include "attempts/image.h"
#include "driver/build_call.h"

namespace npu::ops {
namespace {

using at::IntArrayRef;

template <class Attrs>
bool set_kernel(Attrs& attrs, std::int64_t spatial, IntArrayRef kernel) {
  attrs.spatial = spatial;
  std::fill(std::begin(attrs.kernel), std::end(attrs.kernel), 1);
  if (kernel.size() != 1 && kernel.size() != std::size_t(spatial)) {
    return false;
  }
  for (std::size_t k = 0; k < std::size_t(spatial); ++k) {
    attrs.kernel[k] = kernel[kernel.size() == 1 ? 0 : k];
  }
  return true;
}

// False when something is wrong: CPU has the error for it.
template <class Attrs>
bool set_columns(
    Attrs& attrs,
    IntArrayRef kernel,
    IntArrayRef dilation,
    IntArrayRef padding,
    IntArrayRef stride) {
  attrs.spatial = 2;
  attrs.kernel[2] = attrs.stride[2] = attrs.dilation[2] = 1;
  for (const IntArrayRef list : {kernel, dilation, padding, stride}) {
    if (list.size() != 2) {
      return false;
    }
  }
  for (std::size_t k = 0; k < 2; ++k) {
    attrs.kernel[k] = kernel[k];
    attrs.dilation[k] = dilation[k];
    attrs.padding[k] = padding[k];
    attrs.stride[k] = stride[k];
    if (kernel[k] <= 0 || dilation[k] <= 0 || stride[k] <= 0 ||
        padding[k] < 0) {
      return false;
    }
  }
  return true;
}

// How many places the kernel has in an image; 0 when it does not fit.
template <class Attrs>
std::int64_t kernel_places(const Attrs& attrs, IntArrayRef image) {
  std::int64_t n = 1;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::int64_t room = image[k] + 2 * attrs.padding[k] -
                              attrs.dilation[k] * (attrs.kernel[k] - 1) - 1;
    if (room < 0) {
      return 0;
    }
    n *= room / attrs.stride[k] + 1;
  }
  return n;
}

// True for what PyTorch's own checks let through, and nothing empty.
bool is_grid(
    const at::Tensor& self,
    const at::Tensor& grid,
    std::int64_t padding,
    std::int64_t spatial) {
  return self.dim() == spatial + 2 && grid.dim() == spatial + 2 &&
         grid.size(-1) == spatial && grid.size(0) == self.size(0) &&
         self.numel() > 0 && grid.numel() > 0 && padding >= 0 && padding <= 2;
}

}  // namespace

// ---- fractional pools ----

npu_reason fractional_pool(
    NativeSite& site,
    std::int64_t spatial,
    const at::Tensor& self,
    IntArrayRef kernel,
    const at::Tensor& samples,
    const at::Tensor& out,
    const at::Tensor& indices) {
  npu_fractional_pool_attrs attrs{};
  if (const npu_reason why = first_failed(
          {{set_kernel(attrs, spatial, kernel), kLeaveToCpu},
           {same_dtype(samples, self), NPU_REASON_DTYPE},
           {self.numel() != 0 && out.numel() != 0, NPU_REASON_SIZE}})) {
    return why;
  }
  // For two dimensions PyTorch has the width's sample first.
  const at::Tensor ordered = spatial == 2 ? samples.flip({-1}) : samples;
  return run<build::fractional_pool>(site, out, indices, self, ordered, attrs);
}

npu_reason fractional_pool_grad(
    NativeSite& site,
    Outputs& out,
    std::int64_t spatial,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef output_size,
    const at::Tensor& indices) {
  npu_fractional_pool_grad_attrs attrs{};
  const bool fits =
      self.dim() == grad_out.dim() && indices.sizes() == grad_out.sizes() &&
      self.dim() > spatial && self.numel() > 0 && grad_out.numel() > 0 &&
      output_size.size() == static_cast<std::size_t>(spatial) &&
      grad_out.sizes().slice(self.dim() - spatial) == output_size &&
      grad_out.sizes().slice(0, self.dim() - spatial) ==
          self.sizes().slice(0, self.dim() - spatial) &&
      set_kernel(attrs, spatial, kernel);
  if (!fits) {
    return kLeaveToCpu;
  }
  if (!same_dtype(grad_out, self) || indices.scalar_type() != at::kLong) {
    return NPU_REASON_DTYPE;
  }
  set_output(out, 0, self.sizes(), self);
  return run_checked<build::fractional_pool_grad, IndexError::kOurs>(
      site, out.at(0), grad_out, indices, attrs);
}

// ---- unpool ----

bool fits_unpool2d(
    const at::Tensor& self, const at::Tensor& indices, IntArrayRef size) {
  return size.size() == 2 && indices.sizes() == self.sizes() &&
         (self.dim() == 3 || self.dim() == 4);
}

bool fits_unpool3d(
    const at::Tensor& self,
    const at::Tensor& indices,
    IntArrayRef size,
    IntArrayRef stride,
    IntArrayRef padding) {
  return size.size() == 3 && indices.sizes() == self.sizes() &&
         (self.dim() == 4 || self.dim() == 5) && stride.size() == 3 &&
         stride[0] > 0 && stride[1] > 0 && stride[2] > 0 && padding.size() == 3;
}

npu_reason unpool(
    NativeSite& site,
    Outputs& out,
    std::int64_t spatial,
    const at::Tensor& self,
    const at::Tensor& indices,
    IntArrayRef output_size) {
  at::DimVector sizes(self.sizes());
  std::copy(output_size.begin(), output_size.end(), sizes.end() - spatial);
  const at::Tensor& given = out.at(0);
  if (std::any_of(
          sizes.begin(), sizes.end(), [](std::int64_t n) { return n <= 0; }) ||
      (given.defined() && given.scalar_type() != self.scalar_type())) {
    return kLeaveToCpu;
  }
  set_output(out, 0, sizes, self);
  npu_unpool_attrs attrs{.spatial = spatial};
  return run_checked<build::unpool>(site, out.at(0), self, indices, attrs);
}

// The CPU keeps channels last, accelerators and fake tensors do not.
at::Tensor max_unpool2d_on_cpu(
    NativeSite& site,
    npu_reason why,
    const at::Tensor& self,
    const at::Tensor& indices,
    IntArrayRef output_size) {
  return site.cpu(why, &at::cpu::max_unpool2d, self, indices, output_size)
      .contiguous();
}

// ---- columns ----

npu_reason im2col(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef dilation,
    IntArrayRef padding,
    IntArrayRef stride) {
  npu_im2col_attrs attrs{};
  if (!set_columns(attrs, kernel, dilation, padding, stride) ||
      (self.dim() != 3 && self.dim() != 4) || self.numel() == 0) {
    return kLeaveToCpu;
  }
  const std::int64_t n =
      kernel_places(attrs, self.sizes().slice(self.dim() - 2));
  const at::Tensor& given = out.at(0);
  if (n == 0 ||
      (given.defined() && given.scalar_type() != self.scalar_type())) {
    return kLeaveToCpu;
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.back() *= kernel[0] * kernel[1];
  sizes.push_back(n);
  set_output(out, 0, sizes, self);
  return run<build::im2col>(site, out.at(0), self, attrs);
}

npu_reason col2im(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef output_size,
    IntArrayRef kernel,
    IntArrayRef dilation,
    IntArrayRef padding,
    IntArrayRef stride) {
  npu_col2im_attrs attrs{};
  if (!set_columns(attrs, kernel, dilation, padding, stride) ||
      output_size.size() != 2 || output_size[0] <= 0 || output_size[1] <= 0 ||
      (self.dim() != 2 && self.dim() != 3) || self.numel() == 0 ||
      self.size(-1) != kernel_places(attrs, output_size) ||
      self.size(-2) % (kernel[0] * kernel[1]) != 0) {
    return kLeaveToCpu;
  }
  const at::Tensor& given = out.at(0);
  if (given.defined() && given.scalar_type() != self.scalar_type()) {
    return kLeaveToCpu;
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 1));
  sizes.back() /= kernel[0] * kernel[1];
  sizes.append({output_size[0], output_size[1]});
  set_output(out, 0, sizes, self);
  return run<build::col2im>(site, out.at(0), self, attrs);
}

// ---- grid_sampler ----

npu_reason grid_sample(
    NativeSite& site,
    Outputs& out,
    std::int64_t spatial,
    const at::Tensor& self,
    const at::Tensor& grid,
    std::int64_t padding,
    bool align_corners) {
  if (!is_grid(self, grid, padding, spatial)) {
    return kLeaveToCpu;
  }
  if (!same_dtype(self, grid)) {
    return NPU_REASON_DTYPE;
  }
  at::DimVector sizes(grid.sizes().slice(0, spatial + 1));
  sizes.insert(sizes.begin() + 1, self.size(1));
  set_output(out, 0, sizes, self);
  npu_grid_sample_attrs attrs{
      .spatial = spatial,
      .padding = static_cast<std::uint32_t>(padding),
      .align_corners = align_corners};
  return run<build::grid_sample>(site, out.at(0), self, grid, attrs);
}

npu_reason grid_sample_grad(
    NativeSite& site,
    Outputs& out,
    std::int64_t spatial,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& grid,
    std::int64_t padding,
    bool align_corners,
    std::array<bool, 2> wanted) {
  if (!same_dtype(self, grid) || !same_dtype(grad_out, self)) {
    return NPU_REASON_DTYPE;
  }
  if (!is_grid(self, grid, padding, spatial) || grad_out.dim() != self.dim() ||
      grad_out.size(1) != self.size(1) ||
      grad_out.numel() * spatial != grid.numel() * self.size(1)) {
    return kLeaveToCpu;
  }
  if (wanted[0]) {
    set_output(out, 0, self.sizes(), self);
  }
  set_output(out, 1, grid.sizes(), grid);
  npu_grid_sample_grad_attrs attrs{
      .spatial = spatial,
      .padding = static_cast<std::uint32_t>(padding),
      .align_corners = align_corners};
  return run<build::grid_sample_grad>(
      site, out.at(0), out.at(1), grad_out, self, grid, attrs);
}

}  // namespace npu::ops
