// SPDX-License-Identifier: Apache-2.0
// constant, reflection and replication padding, and the gradients.
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/reflection_pad1d_backward_cpu_dispatch.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_cpu_dispatch.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad2d_backward_cpu_dispatch.h>
#include <ATen/ops/reflection_pad2d_cpu_dispatch.h>
#include <ATen/ops/reflection_pad3d_backward_cpu_dispatch.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_cpu_dispatch.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_cpu_dispatch.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_cpu_dispatch.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_backward_cpu_dispatch.h>
#include <ATen/ops/replication_pad2d_cpu_dispatch.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_backward_cpu_dispatch.h>
#include <ATen/ops/replication_pad3d_cpu_dispatch.h>
#include <ATen/ops/replication_pad3d_meta.h>

#include <algorithm>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
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
  Call call = site.call();
  build::pad(call, to_operand(out), to_operand(self), attrs);
  return run(site, call, self);
}

at::Tensor constant_pad_nd(
    const at::Tensor& self, at::IntArrayRef padding, const c10::Scalar& value) {
  static NativeSite site("aten::constant_pad_nd", NPU_KIND_PAD, 0);
  // Where nothing is added PyTorch clones a view, which has strides to keep.
  const bool adds = std::any_of(
      padding.begin(), padding.end(), [](std::int64_t n) { return n > 0; });
  const bool usual = adds && padding.size() % 2 == 0 &&
                     padding.size() <= 2 * kMostDims &&
                     padding.size() <= 2 * static_cast<std::size_t>(self.dim());
  if (usual && site.wants(self) == NPU_REASON_NONE) {
    const at::DimVector sizes = padded_sizes(self.sizes(), padding);
    if (!sizes.empty()) {
      const at::Tensor out = make_empty(
          sizes,
          self.scalar_type(),
          self.device().index(),
          self.suggest_memory_format());
      // As an element of the dtype: one that does not fit is an error here.
      const NumberOperand number(value, self);
      if (run_pad(site, out, self, padding, value) == NPU_REASON_NONE) {
        return out;
      }
    }
  }
  return at::compositeexplicitautograd::constant_pad_nd(self, padding, value);
}

// ---- reflection, replication ----

bool is_padded_by(
    const at::Tensor& out, const at::Tensor& in, at::IntArrayRef padding) {
  return out.sizes() == padded_sizes(in.sizes(), padding);
}

template <class Meta>
npu_reason pad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef padding) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, padding);
  if (out.at(0).numel() == 0 || self.numel() == 0) {
    return kOdd;
  }
  return run_pad(site, out.at(0), self, padding, 0);
}

// The one without a meta function. What looks wrong gets CPU's error.
npu_reason reflection_pad2d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef padding) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  if (padding.size() != 4 || self.numel() == 0 ||
      (self.dim() != 3 && self.dim() != 4)) {
    return kOdd;
  }
  for (std::size_t k = 0; k < 4; ++k) {
    if (padding[k] >= self.size(-1 - static_cast<std::int64_t>(k / 2))) {
      return kOdd;
    }
  }
  const at::DimVector sizes = padded_sizes(self.sizes(), padding);
  if (sizes.empty()) {
    return kOdd;
  }
  set_output(
      out,
      0,
      sizes,
      self.options().memory_format(self.suggest_memory_format()));
  return run_pad(site, out.at(0), self, padding, 0);
}

npu_reason run_pad_grad(
    NativeSite& site,
    const at::Tensor& grad_in,
    const at::Tensor& grad_out,
    at::IntArrayRef padding) {
  auto attrs = pad_attrs<npu_pad_grad_attrs>(padding);
  Call call = site.call();
  build::pad_grad(call, to_operand(grad_in), to_operand(grad_out), attrs);
  return run(site, call, grad_out);
}

template <class Meta>
npu_reason pad_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    at::IntArrayRef padding) {
  if (const npu_reason why = site.wants(grad_out, self);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (grad_out.numel() == 0 || self.numel() == 0) {
    return kOdd;
  }
  shape<Meta>(out, grad_out, self, padding);
  return run_pad_grad(site, out.at(0), grad_out, padding);
}

// Without a meta function.
npu_reason pad_grad_plain(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad_out,
    const at::Tensor& self,
    at::IntArrayRef padding) {
  if (const npu_reason why = site.wants(grad_out, self);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (padding.size() % 2 != 0 ||
      padding.size() > 2 * static_cast<std::size_t>(self.dim()) ||
      !is_padded_by(grad_out, self, padding) ||
      grad_out.scalar_type() != self.scalar_type() || self.numel() == 0) {
    return kOdd;
  }
  set_output(
      out,
      0,
      self.sizes(),
      self.options().memory_format(self.suggest_memory_format()));
  return run_pad_grad(site, out.at(0), grad_out, padding);
}

namespace meta = at::meta;
constexpr std::uint32_t kPad = NPU_KIND_PAD;
constexpr std::uint32_t kGrad = NPU_KIND_PAD_GRAD;

void add_reflection(torch::Library& m) {
  constexpr std::uint32_t k = NPU_PAD_REFLECT;
  using namespace at::cpu;
  constexpr auto pad1 = pad<meta::structured_reflection_pad1d>;
  constexpr auto pad3 = pad<meta::structured_reflection_pad3d>;
  constexpr auto grad1 = pad_grad<meta::structured_reflection_pad1d_backward>;
  constexpr auto grad3 = pad_grad<meta::structured_reflection_pad3d_backward>;
  add<Op<"reflection_pad1d", kPad, k, &reflection_pad1d, pad1>>(m);
  add<Op<"reflection_pad1d.out", kPad, k, &reflection_pad1d_outf, pad1>>(m);
  add<
      Op<"reflection_pad2d",
         kPad,
         k,
         &at::cpu::reflection_pad2d,
         npu::reflection_pad2d>>(m);
  add<
      Op<"reflection_pad2d.out",
         kPad,
         k,
         &reflection_pad2d_outf,
         npu::reflection_pad2d>>(m);
  add<Op<"reflection_pad3d", kPad, k, &reflection_pad3d, pad3>>(m);
  add<Op<"reflection_pad3d.out", kPad, k, &reflection_pad3d_outf, pad3>>(m);
  add<
      Op<"reflection_pad1d_backward",
         kGrad,
         k,
         &reflection_pad1d_backward,
         grad1>>(m);
  add<
      Op<"reflection_pad1d_backward.grad_input",
         kGrad,
         k,
         &reflection_pad1d_backward_outf,
         grad1>>(m);
  add<
      Op<"reflection_pad2d_backward",
         kGrad,
         k,
         &reflection_pad2d_backward,
         pad_grad_plain>>(m);
  add<
      Op<"reflection_pad2d_backward.grad_input",
         kGrad,
         k,
         &reflection_pad2d_backward_outf,
         pad_grad_plain>>(m);
  add<
      Op<"reflection_pad3d_backward",
         kGrad,
         k,
         &reflection_pad3d_backward,
         grad3>>(m);
  add<
      Op<"reflection_pad3d_backward.grad_input",
         kGrad,
         k,
         &reflection_pad3d_backward_outf,
         grad3>>(m);
}

void add_replication(torch::Library& m) {
  constexpr std::uint32_t k = NPU_PAD_REPLICATE;
  using namespace at::cpu;
  constexpr auto pad1 = pad<meta::structured_replication_pad1d>;
  constexpr auto pad2 = pad<meta::structured_replication_pad2d>;
  constexpr auto pad3 = pad<meta::structured_replication_pad3d>;
  constexpr auto grad1 = pad_grad<meta::structured_replication_pad1d_backward>;
  add<Op<"replication_pad1d", kPad, k, &replication_pad1d, pad1>>(m);
  add<Op<"replication_pad1d.out", kPad, k, &replication_pad1d_outf, pad1>>(m);
  add<Op<"replication_pad2d", kPad, k, &replication_pad2d, pad2>>(m);
  add<Op<"replication_pad2d.out", kPad, k, &replication_pad2d_outf, pad2>>(m);
  add<Op<"replication_pad3d", kPad, k, &replication_pad3d, pad3>>(m);
  add<Op<"replication_pad3d.out", kPad, k, &replication_pad3d_outf, pad3>>(m);
  add<
      Op<"replication_pad1d_backward",
         kGrad,
         k,
         &replication_pad1d_backward,
         grad1>>(m);
  add<
      Op<"replication_pad1d_backward.grad_input",
         kGrad,
         k,
         &replication_pad1d_backward_outf,
         grad1>>(m);
  add<
      Op<"replication_pad2d_backward",
         kGrad,
         k,
         &replication_pad2d_backward,
         pad_grad_plain>>(m);
  add<
      Op<"replication_pad2d_backward.grad_input",
         kGrad,
         k,
         &replication_pad2d_backward_outf,
         pad_grad_plain>>(m);
  add<
      Op<"replication_pad3d_backward",
         kGrad,
         k,
         &replication_pad3d_backward,
         pad_grad_plain>>(m);
  add<
      Op<"replication_pad3d_backward.grad_input",
         kGrad,
         k,
         &replication_pad3d_backward_outf,
         pad_grad_plain>>(m);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("constant_pad_nd", TORCH_FN(constant_pad_nd));
  add_reflection(m);
  add_replication(m);
}

}  // namespace npu
