// SPDX-License-Identifier: Apache-2.0
// npu_rms_norm and npu_add_rms_norm on their kinds.
#include "aten/ops/fused/fused.h"
#include "attempts/norm.h"

namespace npu::fused {
namespace {

// gamma has the last sizes of x, and its dtype or float32.
bool fits_rms(const at::Tensor& x, const at::Tensor& gamma) {
  return is_narrow(x) && gamma.dim() > 0 && gamma.dim() <= x.dim() &&
         x.sizes().slice(x.dim() - gamma.dim()) == gamma.sizes() &&
         (same_dtype(gamma, x) || gamma.scalar_type() == at::kFloat);
}

// float32, x's leading sizes, then 1 for each normalised dimension.
const at::Tensor& set_statistic(
    Outputs& out, const at::Tensor& x, const at::Tensor& gamma) {
  c10::DimVector sizes(x.sizes());
  std::fill(sizes.end() - gamma.dim(), sizes.end(), 1);
  return set_output(out, 1, sizes, x, at::kFloat);
}

}  // namespace

npu_reason rms_norm(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& x,
    const at::Tensor& gamma,
    double epsilon) {
  if (!fits_rms(x, gamma) || epsilon < 0) {
    return kLeaveToCpu;
  }
  npu_rms_norm_attrs attrs{};
  attrs.axes = gamma.dim();
  attrs.eps = epsilon;
  const at::Tensor& y = set_output(out, 0, x.sizes(), x);
  const at::Tensor& rstd = set_statistic(out, x, gamma);
  return run<build::rms_norm>(site, y, rstd, x, gamma, attrs);
}

npu_reason rms_norm_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& x,
    const at::Tensor& gamma,
    const at::Tensor& rstd) {
  if (!fits_rms(x, gamma) || !same_dtype(grad, x) ||
      grad.sizes() != x.sizes() || rstd.scalar_type() != at::kFloat ||
      rstd.numel() * gamma.numel() != x.numel()) {
    return kLeaveToCpu;
  }
  npu_rms_norm_grad_attrs attrs{};
  attrs.axes = gamma.dim();
  const at::Tensor& dx = set_output(out, 0, x.sizes(), x);
  const at::Tensor& dgamma =
      set_output(out, 1, gamma.sizes(), gamma, at::kFloat);
  return run<build::rms_norm_grad>(
      site, dx, dgamma, grad, x, rstd, gamma, attrs);
}

npu_reason add_rms_norm(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& x1,
    const at::Tensor& x2,
    const at::Tensor& gamma,
    double epsilon) {
  if (!fits_rms(x1, gamma) || epsilon < 0 || !same_dtype(x1, x2) ||
      x1.sizes() != x2.sizes()) {
    return kLeaveToCpu;
  }
  npu_add_rms_norm_attrs attrs{};
  attrs.eps = epsilon;
  const at::Tensor& y = set_output(out, 0, x1.sizes(), x1);
  const at::Tensor& rstd = set_statistic(out, x1, gamma);
  const at::Tensor& sum = set_output(out, 2, x1.sizes(), x1);
  return run<build::add_rms_norm>(site, y, sum, rstd, x1, x2, gamma, attrs);
}

bool add_rms_norm_alike(const Arguments& args) {
  return same_dtype(args.tensor("x1"), args.tensor("x2"));
}

// The sum's gradient is both inputs': that of its norm, and its own.
// Values: the sum, gamma, rstd, epsilon, the gradients of y and of the sum.
variable_list add_rms_norm_gradient(const torch::jit::Stack& values) {
  at::Tensor dx = values[5].isTensor() ? values[5].toTensor() : at::Tensor();
  variable_list of_norm(2);
  if (values[4].isTensor()) {
    const at::Tensor& grad = values[4].toTensor();
    if (at::GradMode::is_enabled()) {
      of_norm = custom::gradients_of_composition(
          find_operator("npu::npu_rms_norm"),
          {values[0], values[1], values[3]},
          {0, 1},
          {grad});
    } else {
      torch::jit::Stack stack{grad, values[0], values[1], values[2]};
      find_operator("npu::npu_rms_norm_backward").callBoxed(&stack);
      of_norm = {stack[0].toTensor(), stack[1].toTensor()};
    }
  }
  if (of_norm[0].defined()) {
    dx = dx.defined() ? dx.add(of_norm[0]) : of_norm[0];
  }
  return {dx, dx, of_norm[1]};
}

}  // namespace npu::fused
