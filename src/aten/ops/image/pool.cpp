// SPDX-License-Identifier: Apache-2.0
// Average and maximum pools, adaptive ones too, and their gradients.
#include <ATen/core/Tensor.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/_adaptive_avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/_adaptive_avg_pool3d_cpu_dispatch.h>
#include <ATen/ops/adaptive_avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/adaptive_avg_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_avg_pool3d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/avg_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_cpu_dispatch.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool3d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool3d_with_indices_cpu_dispatch.h>

#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using at::IntArrayRef;

// ---- attributes ----

// One number stands for all dims, none for `otherwise`.
void spread(std::int64_t* to, IntArrayRef from, IntArrayRef otherwise, int n) {
  const IntArrayRef values = from.empty() ? otherwise : from;
  for (int k = 0; k < n; ++k) {
    to[k] =
        values.size() == 1 ? values[0] : values[static_cast<std::size_t>(k)];
  }
}

template <class Attrs>
Attrs pool_attrs(int spatial) {
  Attrs attrs{};
  attrs.spatial = spatial;
  for (int k = 0; k < 3; ++k) {
    attrs.kernel[k] = attrs.stride[k] = attrs.dilation[k] = 1;
  }
  return attrs;
}

// False when the lists have odd lengths: CPU has the error for it.
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
  const int spatial = static_cast<int>(n);
  spread(attrs.kernel, kernel, kernel, spatial);
  spread(attrs.stride, stride, kernel, spatial);
  spread(attrs.padding, padding, padding, spatial);
  spread(attrs.dilation, dilation, dilation, spatial);
  return true;
}

// ---- forward ----

npu_reason run_pool(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    npu_pool_attrs& attrs) {
  const at::Tensor& result = out.at(0);
  if (result.numel() == 0 || self.numel() == 0) {
    return kOdd;
  }
  const at::Tensor& indices = out.at(1);
  const npu_tensor places =
      indices.defined() ? to_operand(indices) : npu_tensor{};
  Call call = site.call();
  build::pool(call, to_operand(result), &places, to_operand(self), attrs);
  return run(site, call, self);
}

template <class Meta, int kSpatial>
npu_reason avg_pool(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    bool ceil_mode,
    bool count_include_pad,
    std::optional<std::int64_t> divisor) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(
      out,
      self,
      kernel,
      stride,
      padding,
      ceil_mode,
      count_include_pad,
      divisor);
  auto attrs = pool_attrs<npu_pool_attrs>(kSpatial);
  // CPU has no half types in three dimensions, and an error for them.
  if (!set_windows(attrs, kernel, stride, padding, {1}) ||
      (kSpatial == 3 && self.element_size() == 2)) {
    return kOdd;
  }
  attrs.ceil_mode = ceil_mode ? 1 : 0;
  attrs.count_include_pad = count_include_pad ? 1 : 0;
  attrs.divisor = divisor.value_or(0);
  return run_pool(site, out, self, attrs);
}

npu_reason max_pool2d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_max_pool2d_with_indices>(
      out, self, kernel, stride, padding, dilation, ceil_mode);
  auto attrs = pool_attrs<npu_pool_attrs>(2);
  if (!set_windows(attrs, kernel, stride, padding, dilation)) {
    return kOdd;
  }
  attrs.ceil_mode = ceil_mode ? 1 : 0;
  return run_pool(site, out, self, attrs);
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
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  auto attrs = pool_attrs<npu_pool_attrs>(3);
  if ((self.dim() != 4 && self.dim() != 5) || self.numel() == 0 ||
      !set_windows(attrs, kernel, stride, padding, dilation)) {
    return kOdd;
  }
  at::DimVector sizes(self.sizes());
  for (std::size_t k = 0; k < 3; ++k) {
    std::int64_t& size = sizes[sizes.size() - 3 + k];
    if (attrs.kernel[k] <= 0 || attrs.stride[k] <= 0 ||
        attrs.dilation[k] <= 0 || attrs.padding[k] < 0 ||
        attrs.padding[k] >
            ((attrs.kernel[k] - 1) * attrs.dilation[k] + 1) / 2) {
      return kOdd;
    }
    size = at::native::pooling_output_shape<std::int64_t>(
        size,
        attrs.kernel[k],
        attrs.padding[k],
        attrs.stride[k],
        attrs.dilation[k],
        ceil_mode);
    if (size <= 0) {
      return kOdd;
    }
  }
  attrs.ceil_mode = ceil_mode ? 1 : 0;
  const auto options =
      self.options().memory_format(self.suggest_memory_format());
  set_output(out, 0, sizes, options);
  set_output(out, 1, sizes, options.dtype(at::kLong));
  return run_pool(site, out, self, attrs);
}

template <class Meta, int kSpatial>
npu_reason adaptive_max_pool(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef output_size) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, output_size);
  auto attrs = pool_attrs<npu_pool_attrs>(kSpatial);
  return run_pool(site, out, self, attrs);
}

template <int kSpatial>
npu_reason adaptive_avg_pool(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    IntArrayRef output_size) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  if (output_size.size() != kSpatial || self.numel() == 0 ||
      (self.dim() != kSpatial + 1 && self.dim() != kSpatial + 2)) {
    return kOdd;
  }
  at::DimVector sizes(self.sizes());
  for (std::size_t k = 0; k < kSpatial; ++k) {
    sizes[sizes.size() - kSpatial + k] = output_size[k];
    if (output_size[k] <= 0) {
      return kOdd;
    }
  }
  const at::Tensor& given = out.at(0);
  if (given.defined() && given.scalar_type() != self.scalar_type()) {
    return kOdd;
  }
  const auto format = kSpatial == 2 ? self.suggest_memory_format()
                                    : at::MemoryFormat::Contiguous;
  set_output(out, 0, sizes, self.options().memory_format(format));
  auto attrs = pool_attrs<npu_pool_attrs>(kSpatial);
  return run_pool(site, out, self, attrs);
}

// ---- backward ----

npu_reason run_grad(
    NativeSite& site,
    const at::Tensor& grad_in,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& indices,
    npu_pool_grad_attrs& attrs) {
  if (grad_in.numel() == 0 || grad_out.numel() == 0 ||
      grad_out.scalar_type() != self.scalar_type() ||
      (indices.defined() && (indices.sizes() != grad_out.sizes() ||
                             indices.scalar_type() != at::kLong))) {
    return kOdd;
  }
  const npu_tensor in = to_operand(self);
  const npu_tensor places =
      indices.defined() ? to_operand(indices) : npu_tensor{};
  Call call = site.call();
  build::pool_grad(
      call, to_operand(grad_in), to_operand(grad_out), &in, &places, attrs);
  return run_checked(site, call, self, IndexError::kOurs);
}

template <class Meta, int kSpatial>
npu_reason avg_pool_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    bool ceil_mode,
    bool count_include_pad,
    std::optional<std::int64_t> divisor) {
  if (const npu_reason why = site.wants(grad_out, self);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(
      out,
      grad_out,
      self,
      kernel,
      stride,
      padding,
      ceil_mode,
      count_include_pad,
      divisor);
  auto attrs = pool_attrs<npu_pool_grad_attrs>(kSpatial);
  // CPU has no half types in three dimensions, and an error for them.
  if (!set_windows(attrs, kernel, stride, padding, {1}) ||
      (kSpatial == 3 && self.element_size() == 2)) {
    return kOdd;
  }
  attrs.ceil_mode = ceil_mode ? 1 : 0;
  attrs.count_include_pad = count_include_pad ? 1 : 0;
  attrs.divisor = divisor.value_or(0);
  return run_grad(site, out.at(0), grad_out, self, {}, attrs);
}

npu_reason max_pool2d_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    IntArrayRef kernel,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode,
    const at::Tensor& indices) {
  if (const npu_reason why = site.wants(grad_out, self, indices);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_max_pool2d_with_indices_backward>(
      out,
      grad_out,
      self,
      kernel,
      stride,
      padding,
      dilation,
      ceil_mode,
      indices);
  auto attrs = pool_attrs<npu_pool_grad_attrs>(2);
  return run_grad(site, out.at(0), grad_out, self, indices, attrs);
}

npu_reason max_pool3d_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    IntArrayRef /*kernel*/,
    IntArrayRef /*stride*/,
    IntArrayRef /*padding*/,
    IntArrayRef /*dilation*/,
    bool /*ceil_mode*/,
    const at::Tensor& indices) {
  if (const npu_reason why = site.wants(grad_out, self, indices);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (self.dim() != grad_out.dim() || (self.dim() != 4 && self.dim() != 5) ||
      self.size(0) != grad_out.size(0) ||
      (self.dim() == 5 && self.size(1) != grad_out.size(1))) {
    return kOdd;
  }
  set_output(
      out,
      0,
      self.sizes(),
      self.options().memory_format(self.suggest_memory_format()));
  auto attrs = pool_attrs<npu_pool_grad_attrs>(3);
  return run_grad(site, out.at(0), grad_out, self, indices, attrs);
}

template <class Meta, int kSpatial>
npu_reason adaptive_max_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    const at::Tensor& indices) {
  if (const npu_reason why = site.wants(grad_out, self, indices);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, grad_out, self, indices);
  auto attrs = pool_attrs<npu_pool_grad_attrs>(kSpatial);
  return run_grad(site, out.at(0), grad_out, self, indices, attrs);
}

template <int kSpatial>
npu_reason adaptive_avg_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self) {
  if (const npu_reason why = site.wants(grad_out, self);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (grad_out.dim() != self.dim() ||
      (self.dim() != kSpatial + 1 && self.dim() != kSpatial + 2) ||
      grad_out.sizes().slice(0, self.dim() - kSpatial) !=
          self.sizes().slice(0, self.dim() - kSpatial)) {
    return kOdd;
  }
  const auto format = kSpatial == 2 ? self.suggest_memory_format()
                                    : at::MemoryFormat::Contiguous;
  set_output(out, 0, self.sizes(), self.options().memory_format(format));
  auto attrs = pool_attrs<npu_pool_grad_attrs>(kSpatial);
  return run_grad(site, out.at(0), grad_out, self, {}, attrs);
}

constexpr std::uint32_t kPool = NPU_KIND_POOL;
constexpr std::uint32_t kPoolGrad = NPU_KIND_POOL_GRAD;

void add_windows(torch::Library& m) {
  using namespace at::cpu;
  constexpr std::uint32_t kAvg = NPU_POOL_AVG;
  constexpr std::uint32_t kMax = NPU_POOL_MAX;
  constexpr auto avg2 = avg_pool<at::meta::structured_avg_pool2d, 2>;
  constexpr auto avg3 = avg_pool<at::meta::structured_avg_pool3d, 3>;
  constexpr auto avg2_grad =
      avg_pool_grad<at::meta::structured_avg_pool2d_backward, 2>;
  constexpr auto avg3_grad =
      avg_pool_grad<at::meta::structured_avg_pool3d_backward, 3>;
  add<Op<"avg_pool2d", kPool, kAvg, &avg_pool2d, avg2>>(m);
  add<Op<"avg_pool2d.out", kPool, kAvg, &avg_pool2d_outf, avg2>>(m);
  add<
      Op<"avg_pool2d_backward",
         kPoolGrad,
         kAvg,
         &avg_pool2d_backward,
         avg2_grad>>(m);
  add<
      Op<"avg_pool2d_backward.grad_input",
         kPoolGrad,
         kAvg,
         &avg_pool2d_backward_outf,
         avg2_grad>>(m);
  add<Op<"avg_pool3d", kPool, kAvg, &avg_pool3d, avg3>>(m);
  add<Op<"avg_pool3d.out", kPool, kAvg, &avg_pool3d_outf, avg3>>(m);
  add<
      Op<"avg_pool3d_backward",
         kPoolGrad,
         kAvg,
         &avg_pool3d_backward,
         avg3_grad>>(m);
  add<
      Op<"avg_pool3d_backward.grad_input",
         kPoolGrad,
         kAvg,
         &avg_pool3d_backward_outf,
         avg3_grad>>(m);
  add<
      Op<"max_pool2d_with_indices",
         kPool,
         kMax,
         &max_pool2d_with_indices,
         max_pool2d>>(m);
  add<
      Op<"max_pool2d_with_indices.out",
         kPool,
         kMax,
         &max_pool2d_with_indices_outf,
         max_pool2d>>(m);
  add<
      Op<"max_pool2d_with_indices_backward",
         kPoolGrad,
         kMax,
         &max_pool2d_with_indices_backward,
         max_pool2d_grad>>(m);
  add<
      Op<"max_pool2d_with_indices_backward.grad_input",
         kPoolGrad,
         kMax,
         &max_pool2d_with_indices_backward_outf,
         max_pool2d_grad>>(m);
  add<
      Op<"max_pool3d_with_indices",
         kPool,
         kMax,
         &max_pool3d_with_indices,
         max_pool3d>>(m);
  add<
      Op<"max_pool3d_with_indices.out",
         kPool,
         kMax,
         &max_pool3d_with_indices_outf,
         max_pool3d>>(m);
  add<
      Op<"max_pool3d_with_indices_backward",
         kPoolGrad,
         kMax,
         &max_pool3d_with_indices_backward,
         max_pool3d_grad>>(m);
  add<
      Op<"max_pool3d_with_indices_backward.grad_input",
         kPoolGrad,
         kMax,
         &max_pool3d_with_indices_backward_outf,
         max_pool3d_grad>>(m);
}

void add_adaptive(torch::Library& m) {
  using namespace at::cpu;
  constexpr std::uint32_t kAvg = NPU_POOL_ADAPTIVE_AVG;
  constexpr std::uint32_t kMax = NPU_POOL_ADAPTIVE_MAX;
  constexpr auto avg2 = adaptive_avg_pool<2>;
  constexpr auto avg3 = adaptive_avg_pool<3>;
  constexpr auto avg2_grad = adaptive_avg_grad<2>;
  constexpr auto avg3_grad = adaptive_avg_grad<3>;
  constexpr auto max2 =
      adaptive_max_pool<at::meta::structured_adaptive_max_pool2d, 2>;
  constexpr auto max3 =
      adaptive_max_pool<at::meta::structured_adaptive_max_pool3d, 3>;
  constexpr auto max2_grad =
      adaptive_max_grad<at::meta::structured_adaptive_max_pool2d_backward, 2>;
  constexpr auto max3_grad =
      adaptive_max_grad<at::meta::structured_adaptive_max_pool3d_backward, 3>;
  add<Op<"_adaptive_avg_pool2d", kPool, kAvg, &_adaptive_avg_pool2d, avg2>>(m);
  add<
      Op<"adaptive_avg_pool2d.out",
         kPool,
         kAvg,
         &adaptive_avg_pool2d_outf,
         avg2>>(m);
  add<
      Op<"_adaptive_avg_pool2d_backward",
         kPoolGrad,
         kAvg,
         &_adaptive_avg_pool2d_backward,
         avg2_grad>>(m);
  add<Op<"_adaptive_avg_pool3d", kPool, kAvg, &_adaptive_avg_pool3d, avg3>>(m);
  add<
      Op<"adaptive_avg_pool3d.out",
         kPool,
         kAvg,
         &adaptive_avg_pool3d_outf,
         avg3>>(m);
  add<
      Op<"_adaptive_avg_pool3d_backward",
         kPoolGrad,
         kAvg,
         &_adaptive_avg_pool3d_backward,
         avg3_grad>>(m);
  add<
      Op<"adaptive_avg_pool3d_backward.grad_input",
         kPoolGrad,
         kAvg,
         &adaptive_avg_pool3d_backward_outf,
         avg3_grad>>(m);
  add<Op<"adaptive_max_pool2d", kPool, kMax, &adaptive_max_pool2d, max2>>(m);
  add<
      Op<"adaptive_max_pool2d.out",
         kPool,
         kMax,
         &adaptive_max_pool2d_outf,
         max2>>(m);
  add<
      Op<"adaptive_max_pool2d_backward",
         kPoolGrad,
         kMax,
         &adaptive_max_pool2d_backward,
         max2_grad>>(m);
  add<
      Op<"adaptive_max_pool2d_backward.grad_input",
         kPoolGrad,
         kMax,
         &adaptive_max_pool2d_backward_outf,
         max2_grad>>(m);
  add<Op<"adaptive_max_pool3d", kPool, kMax, &adaptive_max_pool3d, max3>>(m);
  add<
      Op<"adaptive_max_pool3d.out",
         kPool,
         kMax,
         &adaptive_max_pool3d_outf,
         max3>>(m);
  add<
      Op<"adaptive_max_pool3d_backward",
         kPoolGrad,
         kMax,
         &adaptive_max_pool3d_backward,
         max3_grad>>(m);
  add<
      Op<"adaptive_max_pool3d_backward.grad_input",
         kPoolGrad,
         kMax,
         &adaptive_max_pool3d_backward_outf,
         max3_grad>>(m);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  add_windows(m);
  add_adaptive(m);
}

}  // namespace npu
