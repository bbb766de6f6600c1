// SPDX-License-Identifier: Apache-2.0
// npu_swiglu, npu_geglu and npu_rotary_mul on their kinds.
#include <ATen/ops/cat.h>

#include <string_view>

#include "aten/ops/fused/fused.h"
#include "attempts/activation.h"
#include "attempts/rotary.h"

namespace npu::fused {

// ---- gates ----

namespace {

// `dim` from the front; negative where there are no two halves along it.
std::int64_t halved_dim(const at::Tensor& x, std::int64_t dim) {
  const std::int64_t at = dim < 0 ? dim + x.dim() : dim;
  return at >= 0 && at < x.dim() && x.size(at) % 2 == 0 ? at : -1;
}

c10::DimVector halved_sizes(const at::Tensor& x, std::int64_t dim) {
  c10::DimVector sizes(x.sizes());
  sizes[dim] /= 2;
  return sizes;
}

}  // namespace

npu_reason swiglu(
    NativeSite& site, Outputs& out, const at::Tensor& input, std::int64_t dim) {
  npu_swiglu_attrs attrs{};
  attrs.dim = halved_dim(input, dim);
  if (!is_narrow(input) || attrs.dim < 0) {
    return kLeaveToCpu;
  }
  const at::Tensor& y =
      set_output(out, 0, halved_sizes(input, attrs.dim), input);
  return run<build::swiglu>(site, y, input, attrs);
}

npu_reason swiglu_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    std::int64_t dim) {
  npu_swiglu_grad_attrs attrs{};
  attrs.dim = halved_dim(input, dim);
  if (!is_narrow(input) || attrs.dim < 0 || !same_dtype(grad, input) ||
      grad.sizes() != halved_sizes(input, attrs.dim)) {
    return kLeaveToCpu;
  }
  const at::Tensor& dx = set_output(out, 0, input.sizes(), input);
  return run<build::swiglu_grad>(site, dx, grad, input, attrs);
}

// The kind has a code per `approximate`.
npu_reason geglu(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& input,
    std::int64_t dim,
    bool activate_left) {
  npu_geglu_attrs attrs{};
  attrs.dim = halved_dim(input, dim);
  attrs.active =
      activate_left ? NPU_GEGLU_ACTIVE_FIRST : NPU_GEGLU_ACTIVE_SECOND;
  if (!is_narrow(input) || attrs.dim < 0) {
    return kLeaveToCpu;
  }
  const c10::DimVector sizes = halved_sizes(input, attrs.dim);
  const at::Tensor& y = set_output(out, 0, sizes, input);
  const at::Tensor& gelu = set_output(out, 1, sizes, input);
  return run<build::geglu>(site, y, gelu, input, attrs);
}

npu_reason geglu_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& gelu,
    std::int64_t dim,
    bool activate_left) {
  npu_geglu_grad_attrs attrs{};
  attrs.dim = halved_dim(input, dim);
  attrs.active = activate_left ? NPU_GEGLU_GRAD_ACTIVE_FIRST
                               : NPU_GEGLU_GRAD_ACTIVE_SECOND;
  if (!is_narrow(input) || attrs.dim < 0 || !same_dtype(grad, input) ||
      !same_dtype(gelu, input) || gelu.sizes() != grad.sizes() ||
      grad.sizes() != halved_sizes(input, attrs.dim)) {
    return kLeaveToCpu;
  }
  const at::Tensor& dx = set_output(out, 0, input.sizes(), input);
  return run<build::geglu_grad>(site, dx, grad, input, gelu, attrs);
}

// ---- rotary ----

namespace {

// cos and sin are alike, and broadcast to x.
bool fits_rotary(
    const NativeSite& site,
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin) {
  const int parts = site.code() == NPU_ROTARY_QUARTER ? 4 : 2;
  if (!is_narrow(x) || !is_narrow(cos) || !is_narrow(sin) ||
      cos.sizes() != sin.sizes() || cos.dim() > x.dim() || cos.dim() == 0 ||
      cos.size(-1) != x.size(-1) || x.size(-1) % parts != 0) {
    return false;
  }
  for (std::int64_t d = 1; d <= cos.dim(); ++d) {
    if (cos.size(-d) != 1 && cos.size(-d) != x.size(-d)) {
      return false;
    }
  }
  return true;
}

// The documents cast cos and sin to x's dtype first.
at::Tensor like_input(const at::Tensor& angle, const at::Tensor& x) {
  return angle.scalar_type() == x.scalar_type() ? angle
                                                : angle.to(x.scalar_type());
}

// Sines with which a turn by `sin` is undone: those of the partner, negated.
at::Tensor sines_back(const at::Tensor& sin, std::string_view mode) {
  const std::int64_t n = sin.size(-1);
  if (mode == "interleave") {
    return sin.unflatten(-1, {n / 2, 2}).flip({-1}).flatten(-2).neg();
  }
  const std::int64_t segment = mode == "quarter" ? n / 2 : n;
  std::vector<at::Tensor> parts;
  for (std::int64_t s = 0; s < n; s += segment) {
    parts.push_back(sin.narrow(-1, s + segment / 2, segment / 2));
    parts.push_back(sin.narrow(-1, s, segment / 2));
  }
  return at::cat(parts, -1).neg();
}

}  // namespace

npu_reason rotary_mul(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin) {
  if (!fits_rotary(site, x, cos, sin)) {
    return kLeaveToCpu;
  }
  const at::Tensor& y = set_output(out, 0, x.sizes(), x);
  return run<build::rotary>(site, y, x, like_input(cos, x), like_input(sin, x));
}

npu_reason rotary_mul_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& x,
    const at::Tensor& cos,
    const at::Tensor& sin) {
  if (!fits_rotary(site, x, cos, sin) || !same_dtype(grad, x) ||
      grad.sizes() != x.sizes()) {
    return kLeaveToCpu;
  }
  const at::Tensor& dx = set_output(out, 0, x.sizes(), x);
  const at::Tensor& dcos = set_output(out, 1, cos.sizes(), cos);
  const at::Tensor& dsin = set_output(out, 2, sin.sizes(), sin);
  return run<build::rotary_grad>(
      site, dx, dcos, dsin, grad, x, like_input(cos, x), like_input(sin, x));
}

bool rotary_mul_has_gradient(const Arguments& args) {
  const std::string& mode = args["rotary_mode"].toStringRef();
  return !args.has("rotate") &&
         (mode == "half" || mode == "interleave" || mode == "quarter");
}

// Without gradients of the angles it is the turn back, which needs no input.
// Values: input, cos, sin, mode, gradient.
variable_list rotary_mul_gradient(const torch::jit::Stack& values) {
  if (!values[0].isTensor()) {
    torch::jit::Stack stack{
        values[4],
        values[1],
        sines_back(values[2].toTensor(), values[3].toStringRef()),
        values[3],
        c10::IValue()};
    find_operator("npu::npu_rotary_mul").callBoxed(&stack);
    return {stack[0].toTensor(), at::Tensor(), at::Tensor()};
  }
  torch::jit::Stack stack{
      values[4], values[0], values[1], values[2], values[3]};
  find_operator("npu::npu_rotary_mul_backward").callBoxed(&stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

}  // namespace npu::fused
