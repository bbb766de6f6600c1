// SPDX-License-Identifier: Apache-2.0
// npu_rms_norm and npu_add_rms_norm on their kinds, forward and backward.
#include <torch/csrc/autograd/autograd.h>

#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

constexpr char kRms[] = "npu::npu_rms_norm";
constexpr char kRmsBackward[] = "npu::npu_rms_norm_backward";
constexpr char kAddRms[] = "npu::npu_add_rms_norm";
using RmsFn = Pair(const at::Tensor&, const at::Tensor&, double);
using RmsBackwardFn = Pair(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&);
using AddRmsFn =
    Triple(const at::Tensor&, const at::Tensor&, const at::Tensor&, double);

// gamma has the last sizes of x, and its dtype or float32.
bool fits_rms(const at::Tensor& x, const at::Tensor& gamma) {
  return is_narrow(x) && gamma.dim() > 0 && gamma.dim() <= x.dim() &&
         x.sizes().slice(x.dim() - gamma.dim()) == gamma.sizes() &&
         (same_dtype(gamma, x) || gamma.scalar_type() == at::kFloat);
}

// float32, x's leading sizes, then 1 for each normalised dimension.
at::Tensor empty_statistic(const at::Tensor& x, const at::Tensor& gamma) {
  c10::DimVector sizes(x.sizes());
  std::fill(sizes.end() - gamma.dim(), sizes.end(), 1);
  return empty_of(x, sizes, at::kFloat);
}

Pair rms(const at::Tensor& x, const at::Tensor& gamma, double epsilon) {
  static NativeSite site(kRms, NPU_KIND_RMS_NORM, 0);
  npu_reason why = site.wants(x, gamma);
  if (takes(fits_rms(x, gamma) && epsilon >= 0, why)) {
    npu_rms_norm_attrs attrs{};
    attrs.axes = gamma.dim();
    attrs.eps = epsilon;
    at::Tensor out = empty_of(x, x.sizes(), x.scalar_type());
    at::Tensor rstd = empty_statistic(x, gamma);
    if (run<build::rms_norm>(site, out, rstd, x, gamma, attrs) ==
        NPU_REASON_NONE) {
      return {std::move(out), std::move(rstd)};
    }
  }
  static const auto op = typed<RmsFn>(kRms);
  return op.redispatch(kComposition, x, gamma, epsilon);
}

Pair rms_backward(
    const at::Tensor& grad,
    const at::Tensor& x,
    const at::Tensor& gamma,
    const at::Tensor& rstd) {
  static NativeSite site(kRmsBackward, NPU_KIND_RMS_NORM_GRAD, 0);
  npu_reason why = site.wants(x, grad, gamma, rstd);
  if (takes(
          fits_rms(x, gamma) && same_dtype(grad, x) &&
              grad.sizes() == x.sizes() && rstd.scalar_type() == at::kFloat &&
              rstd.numel() * gamma.numel() == x.numel(),
          why)) {
    npu_rms_norm_grad_attrs attrs{};
    attrs.axes = gamma.dim();
    at::Tensor dx = empty_of(x, x.sizes(), x.scalar_type());
    at::Tensor dgamma = empty_of(gamma, gamma.sizes(), at::kFloat);
    if (run<build::rms_norm_grad>(
            site, dx, dgamma, grad, x, rstd, gamma, attrs) == NPU_REASON_NONE) {
      return {std::move(dx), std::move(dgamma)};
    }
  }
  static const auto op = typed<RmsBackwardFn>(kRmsBackward);
  return op.redispatch(kComposition, grad, x, gamma, rstd);
}

// To be differentiated again: through the composition, where rstd depends on x.
variable_list rms_grads_again(
    const at::Tensor& x,
    const at::Tensor& gamma,
    double epsilon,
    const at::Tensor& grad) {
  static const auto op = typed<RmsFn>(kRms);
  const at::Tensor y =
      std::get<0>(op.redispatch(kComposition, x, gamma, epsilon));
  variable_list inputs;
  for (const at::Tensor& input : {x, gamma}) {
    if (input.requires_grad()) {
      inputs.push_back(input);
    }
  }
  variable_list found = torch::autograd::grad(
      {y}, inputs, {grad}, /*retain_graph=*/true, /*create_graph=*/true);
  if (!x.requires_grad()) {
    found.insert(found.begin(), at::Tensor());
  }
  found.resize(2);
  return found;
}

struct NpuRmsNorm : torch::autograd::Function<NpuRmsNorm> {
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& x,
      const at::Tensor& gamma,
      double epsilon) {
    static const auto op = typed<RmsFn>(kRms);
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [out, rstd] = op.call(x, gamma, epsilon);
    ctx->save_for_backward({x, gamma, rstd});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->mark_non_differentiable({rstd});
    return {out, rstd};
  }
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    static const auto op = typed<RmsBackwardFn>(kRmsBackward);
    const variable_list saved = ctx->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      variable_list found = rms_grads_again(
          saved[0], saved[1], ctx->saved_data["epsilon"].toDouble(), grads[0]);
      return {found[0], found[1], at::Tensor()};
    }
    auto [dx, dgamma] = op.call(grads[0], saved[0], saved[1], saved[2]);
    return {dx, dgamma.to(saved[1].scalar_type()), at::Tensor()};
  }
};

Pair rms_autograd(
    const at::Tensor& x, const at::Tensor& gamma, double epsilon) {
  static const auto op = typed<RmsFn>(kRms);
  if (is_transformed(x, gamma)) {
    return op.redispatch(kComposition, x, gamma, epsilon);
  }
  if (!needs_grad(x, gamma)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x, gamma, epsilon);
  }
  const variable_list outs = NpuRmsNorm::apply(x, gamma, epsilon);
  return {outs[0], outs[1]};
}

Triple add_rms(
    const at::Tensor& x1,
    const at::Tensor& x2,
    const at::Tensor& gamma,
    double epsilon) {
  static NativeSite site(kAddRms, NPU_KIND_ADD_RMS_NORM, 0);
  npu_reason why = site.wants(x1, x2, gamma);
  if (takes(
          fits_rms(x1, gamma) && epsilon >= 0 && same_dtype(x1, x2) &&
              x1.sizes() == x2.sizes(),
          why)) {
    npu_add_rms_norm_attrs attrs{};
    attrs.eps = epsilon;
    at::Tensor out = empty_of(x1, x1.sizes(), x1.scalar_type());
    at::Tensor sum = empty_of(x1, x1.sizes(), x1.scalar_type());
    at::Tensor rstd = empty_statistic(x1, gamma);
    if (run<build::add_rms_norm>(site, out, sum, rstd, x1, x2, gamma, attrs) ==
        NPU_REASON_NONE) {
      return {std::move(out), std::move(rstd), std::move(sum)};
    }
  }
  static const auto op = typed<AddRmsFn>(kAddRms);
  return op.redispatch(kComposition, x1, x2, gamma, epsilon);
}

struct NpuAddRmsNorm : torch::autograd::Function<NpuAddRmsNorm> {
  static variable_list forward(
      AutogradContext* ctx,
      const at::Tensor& x1,
      const at::Tensor& x2,
      const at::Tensor& gamma,
      double epsilon) {
    static const auto op = typed<AddRmsFn>(kAddRms);
    ctx->set_materialize_grads(false);
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [out, rstd, sum] = op.call(x1, x2, gamma, epsilon);
    ctx->save_for_backward({sum, gamma, rstd});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->mark_non_differentiable({rstd});
    return {out, rstd, sum};
  }
  // The sum's gradient is both inputs': that of the norm, and its own.
  static variable_list backward(
      AutogradContext* ctx, const variable_list& grads) {
    static const auto op = typed<RmsBackwardFn>(kRmsBackward);
    const variable_list saved = ctx->get_saved_variables();
    at::Tensor dx = grads[2];
    at::Tensor dgamma;
    if (grads[0].defined()) {
      at::Tensor of_sum;
      if (at::GradMode::is_enabled()) {
        const variable_list found = rms_grads_again(
            saved[0],
            saved[1],
            ctx->saved_data["epsilon"].toDouble(),
            grads[0]);
        of_sum = found[0];
        dgamma = found[1];
      } else {
        std::tie(of_sum, dgamma) =
            op.call(grads[0], saved[0], saved[1], saved[2]);
        dgamma = dgamma.to(saved[1].scalar_type());
      }
      dx = dx.defined() ? dx.add(of_sum) : of_sum;
    }
    return {dx, dx, dgamma, at::Tensor()};
  }
};

Triple add_rms_autograd(
    const at::Tensor& x1,
    const at::Tensor& x2,
    const at::Tensor& gamma,
    double epsilon) {
  static const auto op = typed<AddRmsFn>(kAddRms);
  if (is_transformed(x1, x2, gamma) ||
      (needs_grad(x1, x2, gamma) && !same_dtype(x1, x2))) {
    return op.redispatch(kComposition, x1, x2, gamma, epsilon);
  }
  if (!needs_grad(x1, x2, gamma)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(x1, x2, gamma, epsilon);
  }
  const variable_list outs = NpuAddRmsNorm::apply(x1, x2, gamma, epsilon);
  return {outs[0], outs[1], outs[2]};
}

const custom::Native kInstallRms("npu_rms_norm", &install<&rms, &rms_autograd>);
const custom::Native kInstallRmsBackward(
    "npu_rms_norm_backward", &install<&rms_backward>);
const custom::Native kInstallAddRms(
    "npu_add_rms_norm", &install<&add_rms, &add_rms_autograd>);

}  // namespace
}  // namespace npu::fused
