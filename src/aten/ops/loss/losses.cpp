// SPDX-License-Identifier: Apache-2.0
// Losses: elementwise, and over classes.
#include "aten/ops/loss/losses.h"

#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

// ---- elementwise ----

namespace {

// Nothing to broadcast, nothing to promote.
npu_reason check_loss(const Loss& loss) {
  const at::Tensor& self = loss.self;
  const auto goes_with = [&](const at::Tensor& tensor) {
    return !tensor.defined() || same_dtype(tensor, self);
  };
  return first_failed(
      {{on_device(self, loss.target, loss.weight, loss.pos_weight),
        kLeaveToCpu},
       {is_float(self) && goes_with(loss.target) && goes_with(loss.weight) &&
            goes_with(loss.pos_weight),
        NPU_REASON_DTYPE},
       {is_reduction(loss.reduction) && loss.target.sizes() == self.sizes() &&
            has_sizes(loss.weight, self.sizes()) &&
            has_sizes(loss.pos_weight, self.sizes()),
        kLeaveToCpu}});
}

// Laid out as `like` where it is not reduced.
npu_reason set_loss(Outputs& out, const Loss& loss, std::int64_t reduction) {
  const at::Tensor& like = loss.like;
  const at::IntArrayRef sizes = loss_sizes(like, reduction);
  if (!is_ready(
          out.at(0), sizes, like.scalar_type(), {&loss.self, &loss.target})) {
    return kLeaveToCpu;
  }
  if (reduction == 0) {
    out.set_like(0, like, like.scalar_type());
  } else {
    set_output(out, 0, sizes, like);
  }
  return NPU_REASON_NONE;
}

}  // namespace

npu_reason run_loss(NativeSite& site, const at::Tensor& out, const Loss& loss) {
  if (const npu_reason why = check_loss(loss)) {
    return why;
  }
  npu_loss_attrs attrs{};
  attrs.a = loss.a;
  attrs.reduction = static_cast<std::uint32_t>(loss.reduction);
  Call call = site.call();
  build::loss(
      call,
      to_operand(out),
      to_operand(loss.self),
      to_operand(loss.target),
      MaybeOperand(loss.weight),
      MaybeOperand(loss.pos_weight),
      attrs);
  // Inputs and targets out of range get the CPU's error.
  return run_checked(site, call, loss.self);
}

npu_reason run_loss(NativeSite& site, Outputs& out, const Loss& loss) {
  if (const npu_reason why = check_loss(loss)) {
    return why;
  }
  const npu_reason why = set_loss(out, loss, loss.reduction);
  return why == NPU_REASON_NONE ? run_loss(site, out.at(0), loss) : why;
}

npu_reason run_loss_grad(
    NativeSite& site, Outputs& out, const at::Tensor& grad, const Loss& loss) {
  if (const npu_reason why = check_loss(loss)) {
    return why;
  }
  if (!same_dtype(grad, loss.self)) {
    return NPU_REASON_DTYPE;
  }
  // Of the loss itself, or one number.
  if (!on_device(grad) ||
      (loss.reduction == 0 ? grad.sizes() != loss.self.sizes()
                           : grad.numel() != 1)) {
    return kLeaveToCpu;
  }
  if (const npu_reason why = set_loss(out, loss, 0)) {
    return why;
  }
  npu_loss_grad_attrs attrs{};
  attrs.a = loss.a;
  attrs.reduction = static_cast<std::uint32_t>(loss.reduction);
  Call call = site.call();
  build::loss_grad(
      call,
      to_operand(out.at(0)),
      to_operand(grad),
      to_operand(loss.self),
      to_operand(loss.target),
      MaybeOperand(loss.weight),
      nullptr,
      attrs);
  return run(site, call, loss.self);
}

npu_reason mse_loss(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    const at::Tensor& out) {
  return run_loss(site, out, {self, target, self, reduction});
}

npu_reason mse_loss_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  return run_loss_grad(site, out, grad, {self, target, self, reduction});
}

npu_reason smooth_l1_loss(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double beta,
    const at::Tensor& out) {
  return run_loss(site, out, {self, target, self, reduction, beta});
}

npu_reason huber_loss(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double delta) {
  return run_loss(site, out, {self, target, self, reduction, delta});
}

npu_reason loss_grad_with(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double a) {
  return run_loss_grad(site, out, grad, {self, target, self, reduction, a});
}

// ---- nll ----

namespace {

npu_reason check_nll(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction) {
  return first_failed(
      {{is_float(self) &&
            (target.scalar_type() == at::kLong ||
             target.scalar_type() == at::kByte) &&
            (!weight.defined() || same_dtype(weight, self)),
        NPU_REASON_DTYPE},
       {target.numel() != 0, NPU_REASON_SIZE},
       {on_device(self, target, weight) && is_reduction(reduction) &&
            (!weight.defined() || weight.dim() == 1),
        kLeaveToCpu}});
}

npu_reason check_image_nll(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction) {
  if (const npu_reason why = check_nll(self, target, weight, reduction)) {
    return why;
  }
  const bool fits = self.dim() == 4 && target.scalar_type() == at::kLong &&
                    target.dim() == 3 && target.size(0) == self.size(0) &&
                    target.size(1) == self.size(2) &&
                    target.size(2) == self.size(3) &&
                    (!weight.defined() || weight.size(0) == self.size(1));
  return fits ? npu_reason{NPU_REASON_NONE} : kLeaveToCpu;
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
  if (!on_device(grad, total_weight)) {
    return kLeaveToCpu;
  }
  if (!same_dtype(grad, out)) {
    return NPU_REASON_DTYPE;
  }
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
  return run(site, call, out);
}

const at::Tensor& tensor_of(const at::OptionalTensorRef& tensor) {
  static const at::Tensor undefined;
  return tensor.has_value() ? *tensor : undefined;
}

}  // namespace

npu_reason nll_loss(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    at::OptionalTensorRef weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& out,
    const at::Tensor& total_weight) {
  const at::Tensor& w = tensor_of(weight);
  const npu_reason why = check_nll(self, target, w, reduction);
  return why != NPU_REASON_NONE ? why
                                : run_nll(
                                      site,
                                      self,
                                      target,
                                      w,
                                      reduction,
                                      ignore_index,
                                      out,
                                      total_weight);
}

npu_reason nll_loss_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    at::OptionalTensorRef weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight,
    const at::Tensor& grad_in) {
  const at::Tensor& w = tensor_of(weight);
  const npu_reason why = check_nll(self, target, w, reduction);
  return why != NPU_REASON_NONE ? why
                                : run_nll_grad(
                                      site,
                                      grad,
                                      target,
                                      w,
                                      reduction,
                                      ignore_index,
                                      total_weight,
                                      grad_in);
}

npu_reason nll_loss2d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index) {
  const at::Tensor& w = or_undefined(weight);
  if (const npu_reason why = check_image_nll(self, target, w, reduction)) {
    return why;
  }
  const at::IntArrayRef sizes = loss_sizes(target, reduction);
  const c10::ScalarType type = self.scalar_type();
  if (!is_ready(out.at(0), sizes, type, {&self, &w}) ||
      !is_ready(out.at(1), {}, type, {&self, &w})) {
    return kLeaveToCpu;
  }
  set_output(out, 0, sizes, self);
  set_output(out, 1, {}, self);
  return run_nll(
      site, self, target, w, reduction, ignore_index, out.at(0), out.at(1));
}

npu_reason nll_loss2d_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight) {
  const at::Tensor& w = or_undefined(weight);
  if (const npu_reason why = check_image_nll(self, target, w, reduction)) {
    return why;
  }
  if ((reduction == 0 ? grad.sizes() != target.sizes() : grad.numel() != 1) ||
      !is_ready(out.at(0), self.sizes(), self.scalar_type(), {&grad, &w})) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), self);
  return run_nll_grad(
      site, grad, target, w, reduction, ignore_index, total_weight, out.at(0));
}

}  // namespace npu::ops
