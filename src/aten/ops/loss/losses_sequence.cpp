// SPDX-License-Identifier: Apache-2.0
// CTC and the margin losses.
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/ops/_ctc_loss_backward_cpu_dispatch.h>
#include <ATen/ops/_ctc_loss_cpu_dispatch.h>
#include <ATen/ops/multi_margin_loss_backward_cpu_dispatch.h>
#include <ATen/ops/multi_margin_loss_cpu_dispatch.h>
#include <ATen/ops/multilabel_margin_loss_backward_cpu_dispatch.h>
#include <ATen/ops/multilabel_margin_loss_forward_cpu_dispatch.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "aten/ladder/native.h"
#include "aten/ops/loss/losses.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

bool is_single_or_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ||
         tensor.scalar_type() == at::kDouble;
}

// ---- ctc ----

struct Lengths {
  at::IntArrayRef input;
  at::IntArrayRef target;

  std::int64_t longest_target() const {
    return target.empty() ? 0 : *std::max_element(target.begin(), target.end());
  }
  // Every sample inside what there is.
  bool fit(const at::Tensor& log_probs, const at::Tensor& targets) const {
    const auto batch = static_cast<std::size_t>(log_probs.size(1));
    if (input.size() != batch || target.size() != batch) {
      return false;
    }
    std::int64_t total = 0;
    for (std::size_t n = 0; n < batch; ++n) {
      if (input[n] < 0 || input[n] > log_probs.size(0) || target[n] < 0) {
        return false;
      }
      total += target[n];
    }
    return targets.dim() == 1 ? targets.size(0) == total
                              : targets.size(0) == log_probs.size(1) &&
                                    targets.size(1) >= longest_target();
  }
};

bool is_ctc(
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    const Lengths& lengths,
    std::int64_t blank) {
  return log_probs.dim() == 3 && is_single_or_double(log_probs) &&
         (targets.scalar_type() == at::kLong ||
          targets.scalar_type() == at::kInt) &&
         (targets.dim() == 1 || targets.dim() == 2) && targets.numel() != 0 &&
         blank >= 0 && blank < log_probs.size(2) &&
         lengths.fit(log_probs, targets);
}

at::Tensor on_device_of(const at::Tensor& like, at::IntArrayRef values) {
  return at::tensor(values, at::kLong).to(like.device());
}

Two ctc(
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths,
    std::int64_t blank,
    bool zero_infinity) {
  static NativeSite site("aten::_ctc_loss", NPU_KIND_CTC, 0);
  const Lengths lengths{input_lengths, target_lengths};
  npu_reason why = site.wants(log_probs, targets);
  if (takes(is_ctc(log_probs, targets, lengths, blank), why)) {
    npu_ctc_attrs attrs{};
    attrs.blank = blank;
    at::Tensor out = make_like(log_probs, {log_probs.size(1)});
    at::Tensor alpha = make_like(
        log_probs,
        {log_probs.size(1),
         log_probs.size(0),
         2 * lengths.longest_target() + 1});
    const at::Tensor in = on_device_of(log_probs, input_lengths);
    const at::Tensor labels = on_device_of(log_probs, target_lengths);
    Call call = site.call();
    build::ctc(
        call,
        to_operand(out),
        to_operand(alpha),
        to_operand(log_probs),
        to_operand(targets),
        to_operand(in),
        to_operand(labels),
        attrs);
    why = site.run(call, log_probs.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(alpha)};
    }
  }
  using Fn = Two (*)(
      const at::Tensor&,
      const at::Tensor&,
      at::IntArrayRef,
      at::IntArrayRef,
      std::int64_t,
      bool);
  return site.cpu(
      why,
      static_cast<Fn>(&at::cpu::_ctc_loss),
      log_probs,
      targets,
      input_lengths,
      target_lengths,
      blank,
      zero_infinity);
}

at::Tensor ctc_backward(
    const at::Tensor& grad,
    const at::Tensor& log_probs,
    const at::Tensor& targets,
    at::IntArrayRef input_lengths,
    at::IntArrayRef target_lengths,
    const at::Tensor& losses,
    const at::Tensor& alpha,
    std::int64_t blank,
    bool zero_infinity) {
  static NativeSite site("aten::_ctc_loss_backward", NPU_KIND_CTC_GRAD, 0);
  const Lengths lengths{input_lengths, target_lengths};
  npu_reason why = site.wants(log_probs, targets, grad, losses, alpha);
  const bool plain = is_ctc(log_probs, targets, lengths, blank) &&
                     grad.dim() == 1 && losses.dim() == 1 && alpha.dim() == 3 &&
                     alpha.size(2) == 2 * lengths.longest_target() + 1;
  if (takes(plain, why)) {
    npu_ctc_grad_attrs attrs{};
    attrs.blank = blank;
    attrs.zero_infinity = zero_infinity ? 1 : 0;
    at::Tensor out = make_like(log_probs, log_probs.sizes());
    const at::Tensor in = on_device_of(log_probs, input_lengths);
    const at::Tensor labels = on_device_of(log_probs, target_lengths);
    Call call = site.call();
    build::ctc_grad(
        call,
        to_operand(out),
        to_operand(grad),
        to_operand(log_probs),
        to_operand(targets),
        to_operand(in),
        to_operand(labels),
        to_operand(losses),
        to_operand(alpha),
        attrs);
    why = site.run(call, log_probs.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Fn = at::Tensor (*)(
      const at::Tensor&,
      const at::Tensor&,
      const at::Tensor&,
      at::IntArrayRef,
      at::IntArrayRef,
      const at::Tensor&,
      const at::Tensor&,
      std::int64_t,
      bool);
  return site.cpu(
      why,
      static_cast<Fn>(&at::cpu::_ctc_loss_backward),
      grad,
      log_probs,
      targets,
      input_lengths,
      target_lengths,
      losses,
      alpha,
      blank,
      zero_infinity);
}

// ---- margins ----

// (classes) or (samples, classes), none of them 0.
bool is_scores(const at::Tensor& self, std::int64_t reduction) {
  return is_single_or_double(self) && (self.dim() == 1 || self.dim() == 2) &&
         reduction >= 0 && reduction <= 2;
}

at::IntArrayRef sample_sizes(const at::Tensor& self, std::int64_t reduction) {
  return reduction == 0 && self.dim() == 2 ? self.sizes().slice(0, 1)
                                           : at::IntArrayRef();
}

bool is_multi_margin(
    const at::Tensor& self,
    const at::Tensor& target,
    const c10::Scalar& p,
    const at::Tensor& weight,
    std::int64_t reduction) {
  const std::int64_t samples = self.dim() == 2 ? self.size(0) : 1;
  const bool order =
      p.isIntegral(false) && (p.toLong() == 1 || p.toLong() == 2);
  return is_scores(self, reduction) && order && on_device(target) &&
         target.scalar_type() == at::kLong && target.numel() == samples &&
         target.dim() == self.dim() - 1 &&
         is_parameter(weight, self, self.sizes().slice(self.dim() - 1));
}

at::Tensor multi_margin(
    const at::Tensor& self,
    const at::Tensor& target,
    const c10::Scalar& p,
    const c10::Scalar& margin,
    const OptTensor& weight,
    std::int64_t reduction) {
  static NativeSite site(
      "aten::multi_margin_loss", NPU_KIND_MARGIN, NPU_MARGIN_MULTI_MARGIN);
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, target, w);
  if (takes(is_multi_margin(self, target, p, w, reduction), why)) {
    npu_margin_attrs attrs{};
    attrs.p = p.toLong();
    attrs.margin = margin.toDouble();
    attrs.reduction = static_cast<std::uint32_t>(reduction);
    at::Tensor out = make_like(self, sample_sizes(self, reduction));
    Call call = site.call();
    build::margin(
        call,
        to_operand(out),
        nullptr,
        to_operand(self),
        to_operand(target),
        MaybeOperand(w),
        attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::multi_margin_loss,
      self,
      target,
      p,
      margin,
      weight,
      reduction);
}

at::Tensor multi_margin_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const c10::Scalar& p,
    const c10::Scalar& margin,
    const OptTensor& weight,
    std::int64_t reduction) {
  static NativeSite site(
      "aten::multi_margin_loss_backward",
      NPU_KIND_MARGIN_GRAD,
      NPU_MARGIN_GRAD_MULTI_MARGIN);
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, target, grad, w);
  const bool plain = is_multi_margin(self, target, p, w, reduction) &&
                     on_device(grad) &&
                     grad.sizes() == sample_sizes(self, reduction);
  if (takes(plain, why)) {
    npu_margin_grad_attrs attrs{};
    attrs.p = p.toLong();
    attrs.margin = margin.toDouble();
    attrs.reduction = static_cast<std::uint32_t>(reduction);
    at::Tensor out = make_like(self, self.sizes());
    Call call = site.call();
    build::margin_grad(
        call,
        to_operand(out),
        to_operand(grad),
        to_operand(self),
        to_operand(target),
        MaybeOperand(w),
        nullptr,
        attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::multi_margin_loss_backward,
      grad,
      self,
      target,
      p,
      margin,
      weight,
      reduction);
}

bool is_multilabel(
    const at::Tensor& self, const at::Tensor& target, std::int64_t reduction) {
  return is_scores(self, reduction) && target.scalar_type() == at::kLong &&
         target.sizes() == self.sizes();
}

Two multilabel_margin(
    const at::Tensor& self, const at::Tensor& target, std::int64_t reduction) {
  static NativeSite site(
      "aten::multilabel_margin_loss_forward",
      NPU_KIND_MARGIN,
      NPU_MARGIN_MULTILABEL_MARGIN);
  npu_reason why = site.wants(self, target);
  if (takes(is_multilabel(self, target, reduction), why)) {
    npu_margin_attrs attrs{};
    attrs.p = 1;
    attrs.margin = 1;
    attrs.reduction = static_cast<std::uint32_t>(reduction);
    at::Tensor out = make_like(self, sample_sizes(self, reduction));
    at::Tensor is_target = make_like(self, target.sizes());
    Call call = site.call();
    build::margin(
        call,
        to_operand(out),
        MaybeOperand(is_target),
        to_operand(self),
        to_operand(target),
        nullptr,
        attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(is_target)};
    }
  }
  return site.cpu(
      why, &at::cpu::multilabel_margin_loss_forward, self, target, reduction);
}

at::Tensor multilabel_margin_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    const at::Tensor& is_target) {
  static NativeSite site(
      "aten::multilabel_margin_loss_backward",
      NPU_KIND_MARGIN_GRAD,
      NPU_MARGIN_GRAD_MULTILABEL_MARGIN);
  npu_reason why = site.wants(self, target, grad, is_target);
  const bool plain = is_multilabel(self, target, reduction) &&
                     on_device(grad) &&
                     grad.sizes() == sample_sizes(self, reduction) &&
                     is_target.sizes() == self.sizes();
  if (takes(plain, why)) {
    npu_margin_grad_attrs attrs{};
    attrs.p = 1;
    attrs.margin = 1;
    attrs.reduction = static_cast<std::uint32_t>(reduction);
    at::Tensor out = make_like(self, self.sizes());
    Call call = site.call();
    build::margin_grad(
        call,
        to_operand(out),
        to_operand(grad),
        to_operand(self),
        to_operand(target),
        nullptr,
        MaybeOperand(is_target),
        attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why,
      &at::cpu::multilabel_margin_loss_backward,
      grad,
      self,
      target,
      reduction,
      is_target);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", TORCH_FN(ctc));
  m.impl("_ctc_loss_backward", TORCH_FN(ctc_backward));
  m.impl("multi_margin_loss", TORCH_FN(multi_margin));
  m.impl("multi_margin_loss_backward", TORCH_FN(multi_margin_backward));
  m.impl("multilabel_margin_loss_forward", TORCH_FN(multilabel_margin));
  m.impl(
      "multilabel_margin_loss_backward", TORCH_FN(multilabel_margin_backward));
}

}  // namespace npu
