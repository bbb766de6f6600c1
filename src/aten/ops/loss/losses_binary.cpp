// SPDX-License-Identifier: Apache-2.0
// Losses of two classes: binary cross entropy and soft margin.
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/binary_cross_entropy_backward_cpu_dispatch.h>
#include <ATen/ops/binary_cross_entropy_cpu_dispatch.h>
#include <ATen/ops/binary_cross_entropy_with_logits_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/soft_margin_loss_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/soft_margin_loss_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include "aten/ops/loss/losses.h"
#include "npu/kinds.h"

namespace npu {
namespace {

// Nothing given, or an output that the CPU rung need not see to.
bool is_free(
    const Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    at::IntArrayRef sizes) {
  const at::Tensor& given = out.at(0);
  return !given.defined() ||
         (on_device(given) && is_ready(given, self, sizes) &&
          is_ready(given, target, sizes));
}

// Laid out as `like` where it is not reduced.
const at::Tensor& set_loss(
    Outputs& out, const at::Tensor& like, std::int64_t reduction) {
  if (reduction == 0 && !out.at(0).defined() && !like.is_contiguous()) {
    const at::Tensor laid_out = make_empty_like(like, like.scalar_type());
    out.set(0, like.sizes(), laid_out.strides(), like.options(), false);
    return out.at(0);
  }
  return set_output(out, 0, loss_sizes(like, reduction), like);
}

npu_reason bce(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction) {
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, target, w);
  if (takes(
          fits(self, target) && is_reduction(reduction) &&
              (!w.defined() || fits(self, w)) &&
              is_free(out, self, target, loss_sizes(self, reduction)),
          why)) {
    const at::Tensor& made = set_loss(out, self, reduction);
    // Inputs and targets out of range get the CPU's error.
    why = run_loss(site, self, target, w, reduction, 0, made);
  }
  return why;
}

npu_reason bce_backward(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    std::int64_t reduction) {
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, target, grad, w);
  if (takes(
          fits(self, target) && is_gradient(grad, self, reduction) &&
              (!w.defined() || fits(self, w)) &&
              is_free(out, self, target, self.sizes()),
          why)) {
    const at::Tensor& made = set_loss(out, self, 0);
    why = run_loss_grad(site, grad, self, target, w, reduction, 0, made);
  }
  return why;
}

// Weights are often one per class: they come as large as the input, expanded.
npu_reason bce_with_logits(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    const OptTensor& weight,
    const OptTensor& pos_weight,
    std::int64_t reduction) {
  const at::Tensor& w = or_undefined(weight);
  const at::Tensor& pos = or_undefined(pos_weight);
  npu_reason why = site.wants(self, target, w, pos);
  const auto expands = [&](const at::Tensor& t) {
    return !t.defined() ||
           (on_device(t) && t.scalar_type() == self.scalar_type() &&
            at::is_expandable_to(t.sizes(), self.sizes()));
  };
  if (takes(
          fits(self, target) && is_reduction(reduction) && expands(w) &&
              expands(pos) &&
              is_free(out, self, target, loss_sizes(self, reduction)),
          why)) {
    const auto expanded = [&](const at::Tensor& t) {
      return t.defined() ? t.expand(self.sizes()) : t;
    };
    const at::Tensor& made = set_loss(out, self, reduction);
    why = run_loss(
        site, self, target, expanded(w), reduction, 0, made, expanded(pos));
  }
  return why;
}

npu_reason soft_margin(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  npu_reason why = site.wants(self, target);
  if (takes(
          fits(self, target) && is_reduction(reduction) &&
              is_free(out, self, target, loss_sizes(self, reduction)),
          why)) {
    const at::Tensor& made = set_loss(out, target, reduction);
    why = run_loss(site, self, target, {}, reduction, 0, made);
  }
  return why;
}

npu_reason soft_margin_backward(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    std::int64_t reduction) {
  npu_reason why = site.wants(self, target, grad);
  if (takes(
          fits(self, target) && is_gradient(grad, self, reduction) &&
              is_free(out, self, target, self.sizes()),
          why)) {
    const at::Tensor& made = set_loss(out, target, 0);
    why = run_loss_grad(site, grad, self, target, {}, reduction, 0, made);
  }
  return why;
}

template <Name kName, auto kCpu, auto kAttempt>
using Bce = Op<kName, NPU_KIND_LOSS, NPU_LOSS_BCE, kCpu, kAttempt>;
template <Name kName, auto kCpu, auto kAttempt>
using BceGrad =
    Op<kName, NPU_KIND_LOSS_GRAD, NPU_LOSS_GRAD_BCE, kCpu, kAttempt>;
template <Name kName, auto kCpu, auto kAttempt>
using Logits = Op<kName, NPU_KIND_LOSS, NPU_LOSS_BCE_LOGITS, kCpu, kAttempt>;
template <Name kName, auto kCpu, auto kAttempt>
using Margin = Op<kName, NPU_KIND_LOSS, NPU_LOSS_SOFT_MARGIN, kCpu, kAttempt>;
template <Name kName, auto kCpu, auto kAttempt>
using MarginGrad =
    Op<kName, NPU_KIND_LOSS_GRAD, NPU_LOSS_GRAD_SOFT_MARGIN, kCpu, kAttempt>;

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  add<Bce<"binary_cross_entropy", &at::cpu::binary_cross_entropy, bce>>(m);
  add<
      Bce<"binary_cross_entropy.out",
          &at::cpu::binary_cross_entropy_outf,
          bce>>(m);
  add<BceGrad<
      "binary_cross_entropy_backward",
      &at::cpu::binary_cross_entropy_backward,
      bce_backward>>(m);
  add<BceGrad<
      "binary_cross_entropy_backward.grad_input",
      &at::cpu::binary_cross_entropy_backward_outf,
      bce_backward>>(m);
  namespace composite = at::compositeexplicitautograd;
  add<Logits<
      "binary_cross_entropy_with_logits",
      &composite::binary_cross_entropy_with_logits,
      bce_with_logits>>(m);
  add<Margin<"soft_margin_loss", &composite::soft_margin_loss, soft_margin>>(m);
  add<Margin<
      "soft_margin_loss.out",
      &composite::soft_margin_loss_outf,
      soft_margin>>(m);
  add<MarginGrad<
      "soft_margin_loss_backward",
      &composite::soft_margin_loss_backward,
      soft_margin_backward>>(m);
  add<MarginGrad<
      "soft_margin_loss_backward.grad_input",
      &composite::soft_margin_loss_backward_outf,
      soft_margin_backward>>(m);
}

}  // namespace npu
