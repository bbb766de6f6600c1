// SPDX-License-Identifier: Apache-2.0
// fractional pools, unpooling, im2col and col2im, grid_sampler.
#include <ATen/core/Tensor.h>
#include <ATen/ops/col2im_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool3d_cpu_dispatch.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>
#include <ATen/ops/grid_sampler_2d_backward_cpu_dispatch.h>
#include <ATen/ops/grid_sampler_2d_cpu_dispatch.h>
#include <ATen/ops/grid_sampler_3d_backward_cpu_dispatch.h>
#include <ATen/ops/grid_sampler_3d_cpu_dispatch.h>
#include <ATen/ops/im2col_cpu_dispatch.h>
#include <ATen/ops/max_unpool2d_cpu_dispatch.h>
#include <ATen/ops/max_unpool3d_cpu_dispatch.h>

#include <algorithm>

#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using at::IntArrayRef;

// ---- fractional pools ----

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

template <class Meta, int kSpatial>
npu_reason fractional_pool(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef output_size,
    const at::Tensor& samples) {
  if (const npu_reason why = site.wants(self, samples);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, kernel, output_size, samples);
  npu_fractional_pool_attrs attrs{};
  if (!set_kernel(attrs, kSpatial, kernel) || self.numel() == 0 ||
      samples.scalar_type() != self.scalar_type() || out.at(0).numel() == 0) {
    return kOdd;
  }
  // For two dimensions PyTorch has the width's sample first.
  const at::Tensor ordered = kSpatial == 2 ? samples.flip({-1}) : samples;
  Call call = site.call();
  build::fractional_pool(
      call,
      to_operand(out.at(0)),
      to_operand(out.at(1)),
      to_operand(self),
      to_operand(ordered),
      attrs);
  return run(site, call, self);
}

template <int kSpatial>
npu_reason fractional_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef output_size,
    const at::Tensor& indices) {
  if (const npu_reason why = site.wants(grad_out, self, indices);
      why != NPU_REASON_NONE) {
    return why;
  }
  npu_fractional_pool_grad_attrs attrs{};
  const bool fits =
      self.dim() == grad_out.dim() && indices.sizes() == grad_out.sizes() &&
      self.dim() > kSpatial && self.numel() > 0 && grad_out.numel() > 0 &&
      output_size.size() == kSpatial &&
      grad_out.sizes().slice(self.dim() - kSpatial) == output_size &&
      grad_out.sizes().slice(0, self.dim() - kSpatial) ==
          self.sizes().slice(0, self.dim() - kSpatial) &&
      grad_out.scalar_type() == self.scalar_type() &&
      indices.scalar_type() == at::kLong && set_kernel(attrs, kSpatial, kernel);
  if (!fits) {
    return kOdd;
  }
  set_output(out, 0, self.sizes(), self);
  Call call = site.call();
  build::fractional_pool_grad(
      call,
      to_operand(out.at(0)),
      to_operand(grad_out),
      to_operand(indices),
      attrs);
  return run_checked(site, call, self, IndexError::kOurs);
}

// ---- unpool ----

npu_reason run_unpool(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& indices,
    IntArrayRef output_size,
    int spatial) {
  if (const npu_reason why = site.wants(self, indices);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (output_size.size() != std::size_t(spatial) ||
      indices.scalar_type() != at::kLong || indices.sizes() != self.sizes() ||
      (self.dim() != spatial + 1 && self.dim() != spatial + 2) ||
      self.numel() == 0) {
    return kOdd;
  }
  at::DimVector sizes(self.sizes());
  std::copy(output_size.begin(), output_size.end(), sizes.end() - spatial);
  const at::Tensor& given = out.at(0);
  if (std::any_of(
          sizes.begin(), sizes.end(), [](std::int64_t n) { return n <= 0; }) ||
      (given.defined() && given.scalar_type() != self.scalar_type())) {
    return kOdd;
  }
  const auto format = spatial == 2 ? self.suggest_memory_format()
                                   : at::MemoryFormat::Contiguous;
  set_output(out, 0, sizes, self.options().memory_format(format));
  npu_unpool_attrs attrs{};
  attrs.spatial = spatial;
  Call call = site.call();
  build::unpool(
      call,
      to_operand(out.at(0)),
      to_operand(self),
      to_operand(indices),
      attrs);
  return run_checked(site, call, self);
}

npu_reason unpool2d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& indices,
    IntArrayRef output_size) {
  return run_unpool(site, out, self, indices, output_size, 2);
}

npu_reason unpool3d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& indices,
    IntArrayRef output_size,
    IntArrayRef stride,
    IntArrayRef padding) {
  const bool usual =
      stride.size() == 3 && padding.size() == 3 &&
      std::all_of(
          stride.begin(), stride.end(), [](std::int64_t n) { return n > 0; });
  return usual ? run_unpool(site, out, self, indices, output_size, 3) : kOdd;
}

// ---- columns ----

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

npu_reason im2col(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef dilation,
    IntArrayRef padding,
    IntArrayRef stride) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  npu_im2col_attrs attrs{};
  if (!set_columns(attrs, kernel, dilation, padding, stride) ||
      (self.dim() != 3 && self.dim() != 4) || self.numel() == 0) {
    return kOdd;
  }
  const std::int64_t n =
      kernel_places(attrs, self.sizes().slice(self.dim() - 2));
  const at::Tensor& given = out.at(0);
  if (n == 0 ||
      (given.defined() && given.scalar_type() != self.scalar_type())) {
    return kOdd;
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.back() *= kernel[0] * kernel[1];
  sizes.push_back(n);
  set_output(out, 0, sizes, self);
  Call call = site.call();
  build::im2col(call, to_operand(out.at(0)), to_operand(self), attrs);
  return run(site, call, self);
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
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  npu_col2im_attrs attrs{};
  if (!set_columns(attrs, kernel, dilation, padding, stride) ||
      output_size.size() != 2 || output_size[0] <= 0 || output_size[1] <= 0 ||
      (self.dim() != 2 && self.dim() != 3) || self.numel() == 0 ||
      self.size(-1) != kernel_places(attrs, output_size) ||
      self.size(-2) % (kernel[0] * kernel[1]) != 0) {
    return kOdd;
  }
  const at::Tensor& given = out.at(0);
  if (given.defined() && given.scalar_type() != self.scalar_type()) {
    return kOdd;
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 1));
  sizes.back() /= kernel[0] * kernel[1];
  sizes.append({output_size[0], output_size[1]});
  set_output(out, 0, sizes, self);
  Call call = site.call();
  build::col2im(call, to_operand(out.at(0)), to_operand(self), attrs);
  return run(site, call, self);
}

// ---- grid_sampler ----

// True for what PyTorch's own checks let through, and nothing empty.
bool is_grid(
    const at::Tensor& self,
    const at::Tensor& grid,
    std::int64_t mode,
    std::int64_t padding,
    int spatial) {
  return self.dim() == spatial + 2 && grid.dim() == spatial + 2 &&
         grid.size(-1) == spatial && grid.size(0) == self.size(0) &&
         self.scalar_type() == grid.scalar_type() && self.numel() > 0 &&
         grid.numel() > 0 && mode >= 0 &&
         mode < (spatial == 2 ? NPU_GRID_SAMPLE_CODES : 2) && padding >= 0 &&
         padding <= 2;
}

template <int kSpatial>
npu_reason grid_sample(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& grid,
    std::int64_t mode,
    std::int64_t padding,
    bool align_corners) {
  if (const npu_reason why = site.wants(self, grid); why != NPU_REASON_NONE) {
    return why;
  }
  if (!is_grid(self, grid, mode, padding, kSpatial)) {
    return kOdd;
  }
  at::DimVector sizes(grid.sizes().slice(0, kSpatial + 1));
  sizes.insert(sizes.begin() + 1, self.size(1));
  set_output(out, 0, sizes, self);
  npu_grid_sample_attrs attrs{};
  attrs.spatial = kSpatial;
  attrs.padding = static_cast<std::uint32_t>(padding);
  attrs.align_corners = align_corners ? 1 : 0;
  Call call = site.call();
  call.frame().code = static_cast<std::uint32_t>(mode);
  build::grid_sample(
      call, to_operand(out.at(0)), to_operand(self), to_operand(grid), attrs);
  return run(site, call, self);
}

template <int kSpatial>
npu_reason grid_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& grid,
    std::int64_t mode,
    std::int64_t padding,
    bool align_corners,
    std::array<bool, 2> wanted) {
  if (const npu_reason why = site.wants(grad_out, self, grid);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (!is_grid(self, grid, mode, padding, kSpatial) ||
      grad_out.scalar_type() != self.scalar_type() ||
      grad_out.dim() != self.dim() || grad_out.size(1) != self.size(1) ||
      grad_out.numel() * kSpatial != grid.numel() * self.size(1)) {
    return kOdd;
  }
  npu_tensor grad_in{};
  if (wanted[0]) {
    grad_in = to_operand(set_output(out, 0, self.sizes(), self));
  }
  const npu_tensor grad_grid =
      to_operand(set_output(out, 1, grid.sizes(), grid));
  npu_grid_sample_grad_attrs attrs{};
  attrs.spatial = kSpatial;
  attrs.padding = static_cast<std::uint32_t>(padding);
  attrs.align_corners = align_corners ? 1 : 0;
  Call call = site.call();
  call.frame().code = static_cast<std::uint32_t>(mode);
  build::grid_sample_grad(
      call,
      &grad_in,
      &grad_grid,
      to_operand(grad_out),
      to_operand(self),
      to_operand(grid),
      attrs);
  return run(site, call, self);
}

void add_fractional(torch::Library& m) {
  using namespace at::cpu;
  constexpr std::uint32_t k = NPU_KIND_FRACTIONAL_POOL;
  constexpr std::uint32_t g = NPU_KIND_FRACTIONAL_POOL_GRAD;
  constexpr auto pool2 =
      fractional_pool<at::meta::structured_fractional_max_pool2d, 2>;
  constexpr auto pool3 =
      fractional_pool<at::meta::structured_fractional_max_pool3d, 3>;
  constexpr auto grad2 = fractional_grad<2>;
  constexpr auto grad3 = fractional_grad<3>;
  add<Op<"fractional_max_pool2d", k, 0, &fractional_max_pool2d, pool2>>(m);
  add<
      Op<"fractional_max_pool2d.output",
         k,
         0,
         &fractional_max_pool2d_outf,
         pool2>>(m);
  add<Op<"fractional_max_pool3d", k, 0, &fractional_max_pool3d, pool3>>(m);
  add<
      Op<"fractional_max_pool3d.output",
         k,
         0,
         &fractional_max_pool3d_outf,
         pool3>>(m);
  add<
      Op<"fractional_max_pool2d_backward",
         g,
         0,
         &fractional_max_pool2d_backward,
         grad2>>(m);
  add<
      Op<"fractional_max_pool2d_backward.grad_input",
         g,
         0,
         &fractional_max_pool2d_backward_outf,
         grad2>>(m);
  add<
      Op<"fractional_max_pool3d_backward",
         g,
         0,
         &fractional_max_pool3d_backward,
         grad3>>(m);
  add<
      Op<"fractional_max_pool3d_backward.grad_input",
         g,
         0,
         &fractional_max_pool3d_backward_outf,
         grad3>>(m);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::cpu;
  add_fractional(m);
  constexpr std::uint32_t kUnpool = NPU_KIND_UNPOOL;
  add<Op<"max_unpool2d", kUnpool, 0, &max_unpool2d, unpool2d>>(m);
  add<Op<"max_unpool2d.out", kUnpool, 0, &max_unpool2d_outf, unpool2d>>(m);
  add<Op<"max_unpool3d", kUnpool, 0, &max_unpool3d, unpool3d>>(m);
  add<Op<"max_unpool3d.out", kUnpool, 0, &max_unpool3d_outf, unpool3d>>(m);
  constexpr std::uint32_t kIm2col = NPU_KIND_IM2COL;
  constexpr std::uint32_t kCol2im = NPU_KIND_COL2IM;
  add<Op<"im2col", kIm2col, 0, &at::cpu::im2col, npu::im2col>>(m);
  add<Op<"im2col.out", kIm2col, 0, &im2col_outf, npu::im2col>>(m);
  add<Op<"col2im", kCol2im, 0, &at::cpu::col2im, npu::col2im>>(m);
  add<Op<"col2im.out", kCol2im, 0, &col2im_outf, npu::col2im>>(m);
  constexpr std::uint32_t kGrid = NPU_KIND_GRID_SAMPLE;
  constexpr std::uint32_t kGrad = NPU_KIND_GRID_SAMPLE_GRAD;
  constexpr auto grad2 = grid_grad<2>;
  constexpr auto grad3 = grid_grad<3>;
  add<Op<"grid_sampler_2d", kGrid, 0, &grid_sampler_2d, grid_sample<2>>>(m);
  add<Op<"grid_sampler_3d", kGrid, 0, &grid_sampler_3d, grid_sample<3>>>(m);
  add<
      Op<"grid_sampler_2d_backward",
         kGrad,
         0,
         &grid_sampler_2d_backward,
         grad2>>(m);
  add<
      Op<"grid_sampler_3d_backward",
         kGrad,
         0,
         &grid_sampler_3d_backward,
         grad3>>(m);
}

}  // namespace npu
