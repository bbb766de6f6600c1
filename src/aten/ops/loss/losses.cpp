// SPDX-License-Identifier: Apache-2.0
// Losses: elementwise, and over classes.
#include "aten/ops/loss/losses.h"

#include <ATen/ExpandUtils.h>

#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

// ---- elementwise ----

namespace {

// Operands of one dtype and size. `a` is the kind's parameter: beta of
// smooth_l1, delta of huber.
struct Loss {
  const at::Tensor& self;
  const at::Tensor& target;
  std::int64_t reduction;
  double a = 0;
  at::Tensor weight = {};
  at::Tensor pos_weight = {};

  template <class Attrs>
  Attrs attrs() const {
    Attrs out{};
    out.a = a;
    out.reduction = static_cast<std::uint32_t>(reduction);
    return out;
  }
  // Nothing to broadcast, nothing to promote.
  npu_reason check() const {
    const auto goes_with = [&](const at::Tensor& tensor) {
      return !tensor.defined() || same_dtype(tensor, self);
    };
    return first_failed(
        {{on_device(self, target, weight, pos_weight), kLeaveToCpu},
         {is_float(self) && goes_with(target) && goes_with(weight) &&
              goes_with(pos_weight),
          NPU_REASON_DTYPE},
         {is_reduction(reduction) && target.sizes() == self.sizes() &&
              has_sizes(weight, self.sizes()) &&
              has_sizes(pos_weight, self.sizes()),
          kLeaveToCpu}});
  }
  // The output, laid out as `like` where it is not reduced.
  npu_reason set(Outputs& out, const at::Tensor& like, bool reduced) const {
    const at::IntArrayRef sizes = reduced ? at::IntArrayRef() : like.sizes();
    if (!is_ready(out.at(0), sizes, like.scalar_type(), {&self, &target})) {
      return kLeaveToCpu;
    }
    if (reduced) {
      set_output(out, 0, sizes, like);
    } else {
      out.set_like(0, like, like.scalar_type());
    }
    return NPU_REASON_NONE;
  }
};

npu_reason run_loss(NativeSite& site, const Loss& loss, const at::Tensor& out) {
  if (const npu_reason why = loss.check()) {
    return why;
  }
  auto attrs = loss.attrs<npu_loss_attrs>();
  // Inputs and targets out of range get the CPU's error.
  return run_checked<build::loss>(
      site, out, loss.self, loss.target, loss.weight, loss.pos_weight, attrs);
}

npu_reason run_loss(
    NativeSite& site, Outputs& out, const Loss& loss, const at::Tensor& like) {
  npu_reason why = loss.check();
  if (why == NPU_REASON_NONE) {
    why = loss.set(out, like, loss.reduction != 0);
  }
  return why == NPU_REASON_NONE ? run_loss(site, loss, out.at(0)) : why;
}

}  // namespace

npu_reason loss_out(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction,
    double a,
    const at::Tensor& out) {
  return run_loss(site, {self, target, reduction, a}, out);
}

npu_reason loss(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    double a,
    const at::Tensor& like) {
  return run_loss(site, out, {self, target, reduction, a, weight}, like);
}

// Weights are often one per class: they come as large as the input, expanded.
npu_reason bce_with_logits(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    const at::Tensor& pos_weight,
    std::int64_t reduction) {
  const auto expanded = [&](const at::Tensor& tensor) {
    return tensor.defined() &&
                   at::is_expandable_to(tensor.sizes(), self.sizes())
               ? tensor.expand(self.sizes())
               : tensor;
  };
  const Loss loss{
      self, target, reduction, 0, expanded(weight), expanded(pos_weight)};
  return run_loss(site, out, loss, self);
}

npu_reason loss_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    double a,
    const at::Tensor& like) {
  const Loss loss{self, target, reduction, a, weight};
  if (const npu_reason why = loss.check()) {
    return why;
  }
  // Of the loss itself, or one number.
  const bool fits =
      reduction == 0 ? grad.sizes() == self.sizes() : grad.numel() == 1;
  if (const npu_reason why = first_failed(
          {{same_dtype(grad, self), NPU_REASON_DTYPE},
           {on_device(grad) && fits, kLeaveToCpu}})) {
    return why;
  }
  if (const npu_reason why = loss.set(out, like, false)) {
    return why;
  }
  auto attrs = loss.attrs<npu_loss_grad_attrs>();
  return run<build::loss_grad>(
      site, out.at(0), grad, self, target, weight, nullptr, attrs);
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

}  // namespace

npu_reason nll_loss(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& out,
    const at::Tensor& total_weight) {
  if (const npu_reason why = check_nll(self, target, weight, reduction)) {
    return why;
  }
  npu_nll_attrs attrs{
      .ignore_index = ignore_index,
      .reduction = static_cast<std::uint32_t>(reduction)};
  // A target out of range gets the CPU's error.
  return run_checked<build::nll>(
      site, out, total_weight, self, target, weight, attrs);
}

npu_reason nll_loss_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight,
    const at::Tensor& out) {
  if (const npu_reason why = check_nll(self, target, weight, reduction)) {
    return why;
  }
  if (const npu_reason why = first_failed(
          {{on_device(grad, total_weight), kLeaveToCpu},
           {same_dtype(grad, out), NPU_REASON_DTYPE}})) {
    return why;
  }
  npu_nll_grad_attrs attrs{
      .ignore_index = ignore_index,
      .reduction = static_cast<std::uint32_t>(reduction)};
  return run<build::nll_grad>(
      site, out, grad, target, weight, total_weight, attrs);
}

npu_reason nll_loss2d(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& w,
    std::int64_t reduction,
    std::int64_t ignore_index) {
  if (const npu_reason why = check_image_nll(self, target, w, reduction)) {
    return why;
  }
  const at::IntArrayRef sizes =
      reduction == 0 ? target.sizes() : at::IntArrayRef();
  const c10::ScalarType type = self.scalar_type();
  if (!is_ready(out.at(0), sizes, type, {&self, &w}) ||
      !is_ready(out.at(1), {}, type, {&self, &w})) {
    return kLeaveToCpu;
  }
  set_output(out, 0, sizes, self);
  set_output(out, 1, {}, self);
  return nll_loss(
      site, self, target, w, reduction, ignore_index, out.at(0), out.at(1));
}

npu_reason nll_loss2d_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& w,
    std::int64_t reduction,
    std::int64_t ignore_index,
    const at::Tensor& total_weight) {
  if (const npu_reason why = check_image_nll(self, target, w, reduction)) {
    return why;
  }
  if ((reduction == 0 ? grad.sizes() != target.sizes() : grad.numel() != 1) ||
      !is_ready(out.at(0), self.sizes(), self.scalar_type(), {&grad, &w})) {
    return kLeaveToCpu;
  }
  set_output(out, 0, self.sizes(), self);
  return nll_loss_grad(
      site,
      grad,
      self,
      target,
      w,
      reduction,
      ignore_index,
      total_weight,
      out.at(0));
}

}  // namespace npu::ops
