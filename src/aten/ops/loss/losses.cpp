// SPDX-License-Identifier: Apache-2.0
// Losses: elementwise and over classes. The structured groups are
// named in ops/aten/nn.yaml.
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/ops/huber_loss_backward_cpu_dispatch.h>
#include <ATen/ops/huber_loss_cpu_dispatch.h>
#include <ATen/ops/mse_loss_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss2d_backward_cpu_dispatch.h>
#include <ATen/ops/nll_loss2d_forward_cpu_dispatch.h>
#include <ATen/ops/smooth_l1_loss_backward_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/ops/loss/losses.h"
#include "driver/build_call.h"
#include "impls.h"

namespace npu {

npu_reason run_loss(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    double a,
    const at::Tensor& out,
    const at::Tensor& pos_weight) {
  npu_loss_attrs attrs{};
  attrs.a = a;
  attrs.reduction = static_cast<std::uint32_t>(reduction);
  Call call = site.call();
  build::loss(
      call,
      to_operand(out),
      to_operand(self),
      to_operand(target),
      MaybeOperand(weight),
      MaybeOperand(pos_weight),
      attrs);
  return run_checked(site, call, self);
}

npu_reason run_loss_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    double a,
    const at::Tensor& out) {
  npu_loss_grad_attrs attrs{};
  attrs.a = a;
  attrs.reduction = static_cast<std::uint32_t>(reduction);
  Call call = site.call();
  build::loss_grad(
      call,
      to_operand(out),
      to_operand(grad),
      to_operand(self),
      to_operand(target),
      MaybeOperand(weight),
      nullptr,
      attrs);
  return site.run(call, self.device().index());
}

namespace {

// ---- mse, smooth_l1, huber ----

at::Tensor mse_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  static NativeSite site(
      "aten::mse_loss_backward", NPU_KIND_LOSS_GRAD, NPU_LOSS_GRAD_MSE);
  npu_reason why = site.wants(self, target, grad);
  if (takes(fits(self, target) && is_gradient(grad, self, reduction), why)) {
    at::Tensor out = make_like(self, self.sizes());
    why = run_loss_grad(site, grad, self, target, {}, reduction, 0, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why, &at::cpu::mse_loss_backward, grad, self, target, reduction);
}

at::Tensor& mse_backward_out(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    at::Tensor& out) {
  static NativeSite site(
      "aten::mse_loss_backward.grad_input",
      NPU_KIND_LOSS_GRAD,
      NPU_LOSS_GRAD_MSE);
  npu_reason why = site.wants(self, target, grad, out);
  if (takes(
          fits(self, target) && is_gradient(grad, self, reduction) &&
              is_ready(out, self, self.sizes()),
          why)) {
    why = run_loss_grad(site, grad, self, target, {}, reduction, 0, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::mse_loss_backward_outf,
      grad,
      self,
      target,
      reduction,
      out);
}

at::Tensor& smooth_l1_backward_out(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double beta,
    at::Tensor& out) {
  static NativeSite site(
      "aten::smooth_l1_loss_backward.grad_input",
      NPU_KIND_LOSS_GRAD,
      NPU_LOSS_GRAD_SMOOTH_L1);
  npu_reason why = site.wants(self, target, grad, out);
  if (takes(
          fits(self, target) && is_gradient(grad, self, reduction) &&
              is_ready(out, self, self.sizes()),
          why)) {
    why = run_loss_grad(site, grad, self, target, {}, reduction, beta, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::smooth_l1_loss_backward_outf,
      grad,
      self,
      target,
      reduction,
      beta,
      out);
}

at::Tensor huber(
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double delta) {
  static NativeSite site("aten::huber_loss", NPU_KIND_LOSS, NPU_LOSS_HUBER);
  npu_reason why = site.wants(self, target);
  if (takes(fits(self, target) && is_reduction(reduction) && delta > 0, why)) {
    at::Tensor out = make_like(self, loss_sizes(self, reduction));
    why = run_loss(site, self, target, {}, reduction, delta, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::huber_loss, self, target, reduction, delta);
}

at::Tensor& huber_out(
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double delta,
    at::Tensor& out) {
  static NativeSite site("aten::huber_loss.out", NPU_KIND_LOSS, NPU_LOSS_HUBER);
  npu_reason why = site.wants(self, target, out);
  if (takes(
          fits(self, target) && is_reduction(reduction) && delta > 0 &&
              is_ready(out, self, loss_sizes(self, reduction)),
          why)) {
    why = run_loss(site, self, target, {}, reduction, delta, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why, &at::cpu::huber_loss_outf, self, target, reduction, delta, out);
}

at::Tensor& huber_backward_out(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double delta,
    at::Tensor& out) {
  static NativeSite site(
      "aten::huber_loss_backward.out", NPU_KIND_LOSS_GRAD, NPU_LOSS_GRAD_HUBER);
  npu_reason why = site.wants(self, target, grad, out);
  if (takes(
          fits(self, target) && is_gradient(grad, self, reduction) &&
              is_ready(out, self, self.sizes()),
          why)) {
    why = run_loss_grad(site, grad, self, target, {}, reduction, delta, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::huber_loss_backward_outf,
      grad,
      self,
      target,
      reduction,
      delta,
      out);
}

// ---- nll over images ----

using Two = std::tuple<at::Tensor, at::Tensor>;

bool is_nll(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction) {
  return on_device(self, target, weight) && is_float(self) &&
         is_reduction(reduction) &&
         (target.scalar_type() == at::kLong ||
          target.scalar_type() == at::kByte) &&
         (!weight.defined() ||
          (weight.scalar_type() == self.scalar_type() && weight.dim() == 1));
}

bool is_image_nll(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction) {
  return is_nll(self, target, weight, reduction) && self.dim() == 4 &&
         target.scalar_type() == at::kLong && target.dim() == 3 &&
         target.size(0) == self.size(0) && target.size(1) == self.size(2) &&
         target.size(2) == self.size(3) &&
         (!weight.defined() || weight.size(0) == self.size(1));
}

npu_reason run_nll(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& out,
    const at::Tensor& total_weight) {
  npu_nll_attrs attrs{};
  attrs.ignore_index = ignore_index;
  attrs.reduction = static_cast<std::uint32_t>(reduction);
  Call call = site.call();
  build::nll(
      call,
      to_operand(out),
      to_operand(total_weight),
      to_operand(self),
      to_operand(target),
      MaybeOperand(weight),
      attrs);
  // A target out of range gets the CPU's error.
  return run_checked(site, call, self);
}

npu_reason run_nll_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight,
    const at::Tensor& out) {
  npu_nll_grad_attrs attrs{};
  attrs.ignore_index = ignore_index;
  attrs.reduction = static_cast<std::uint32_t>(reduction);
  Call call = site.call();
  build::nll_grad(
      call,
      to_operand(out),
      to_operand(grad),
      to_operand(target),
      MaybeOperand(weight),
      to_operand(total_weight),
      attrs);
  return site.run(call, out.device().index());
}

Two nll2d(
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index) {
  static NativeSite site("aten::nll_loss2d_forward", NPU_KIND_NLL, 0);
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, target, w);
  if (takes(is_image_nll(self, target, w, reduction), why)) {
    at::Tensor out =
        make_like(self, reduction == 0 ? target.sizes() : at::IntArrayRef());
    at::Tensor total = make_like(self, {});
    why = run_nll(site, self, target, w, reduction, ignore_index, out, total);
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(total)};
    }
  }
  return site.cpu(
      why,
      &at::cpu::nll_loss2d_forward,
      self,
      target,
      weight,
      reduction,
      ignore_index);
}

at::Tensor nll2d_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight) {
  static NativeSite site("aten::nll_loss2d_backward", NPU_KIND_NLL_GRAD, 0);
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, target, grad, w, total_weight);
  const bool gradient =
      on_device(grad, total_weight) &&
      grad.scalar_type() == self.scalar_type() &&
      (reduction == 0 ? grad.sizes() == target.sizes() : grad.numel() == 1);
  if (takes(is_image_nll(self, target, w, reduction) && gradient, why)) {
    at::Tensor out = make_like(self, self.sizes());
    why = run_nll_grad(
        site, grad, target, w, reduction, ignore_index, total_weight, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::nll_loss2d_backward,
      grad,
      self,
      target,
      weight,
      reduction,
      ignore_index,
      total_weight);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mse_loss_backward", TORCH_FN(mse_backward));
  m.impl("mse_loss_backward.grad_input", TORCH_FN(mse_backward_out));
  m.impl(
      "smooth_l1_loss_backward.grad_input", TORCH_FN(smooth_l1_backward_out));
  m.impl("huber_loss", TORCH_FN(huber));
  m.impl("huber_loss.out", TORCH_FN(huber_out));
  m.impl("huber_loss_backward.out", TORCH_FN(huber_backward_out));
  m.impl("nll_loss2d_forward", TORCH_FN(nll2d));
  m.impl("nll_loss2d_backward", TORCH_FN(nll2d_backward));
}

}  // namespace npu

namespace at_npu::native {

using namespace npu;

npu_reason mse_loss_out(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    const at::Tensor& out) {
  return fits(self, target) && is_reduction(reduction)
             ? run_loss(site, self, target, {}, reduction, 0, out)
             : NPU_REASON_DTYPE;
}

npu_reason smooth_l1_loss_out(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double beta,
    const at::Tensor& out) {
  return fits(self, target) && is_reduction(reduction)
             ? run_loss(site, self, target, {}, reduction, beta, out)
             : NPU_REASON_DTYPE;
}

npu_reason nll_out(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    at::OptionalTensorRef weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& output,
    const at::Tensor& total_weight) {
  const at::Tensor& w = weight.has_value() ? *weight : or_undefined({});
  if (!is_nll(self, target, w, reduction) || target.numel() == 0) {
    return NPU_REASON_DTYPE;
  }
  return run_nll(
      site, self, target, w, reduction, ignore_index, output, total_weight);
}

npu_reason nll_grad_out(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    at::OptionalTensorRef weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight,
    const at::Tensor& grad_input) {
  const at::Tensor& w = weight.has_value() ? *weight : or_undefined({});
  if (!is_nll(self, target, w, reduction) || target.numel() == 0 ||
      !on_device(grad, total_weight) ||
      grad.scalar_type() != self.scalar_type()) {
    return NPU_REASON_DTYPE;
  }
  return run_nll_grad(
      site, grad, target, w, reduction, ignore_index, total_weight, grad_input);
}

}  // namespace at_npu::native
