// SPDX-License-Identifier: Apache-2.0
// Layer norm, rms norm, group norm and weight norm.
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/OpMathType.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_weight_norm_interface_backward_cpu_dispatch.h>
#include <ATen/ops/_weight_norm_interface_cpu_dispatch.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/native_group_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_group_norm_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "aten/core/factories.h"
#include "aten/ladder/native.h"
#include "aten/ops/operands.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;

at::Tensor empty(
    const at::Tensor& like,
    at::IntArrayRef sizes,
    c10::ScalarType type,
    std::optional<c10::MemoryFormat> format = std::nullopt) {
  return make_empty(sizes, type, like.device().index(), format);
}

at::Tensor empty_if(bool wanted, const at::Tensor& like) {
  return wanted && like.defined()
             ? empty(like, like.sizes(), like.scalar_type())
             : at::Tensor();
}

// ---- layer norm ----

// normalized_shape is the input's last sizes.
bool is_tail(const at::Tensor& input, at::IntArrayRef shape) {
  return !shape.empty() &&
         static_cast<std::size_t>(input.dim()) >= shape.size() &&
         input.sizes().slice(input.dim() - shape.size()) == shape;
}

Three layer_norm(
    const at::Tensor& input,
    at::IntArrayRef shape,
    const OptTensor& weight,
    const OptTensor& bias,
    double eps) {
  static NativeSite site("aten::native_layer_norm", NPU_KIND_LAYER_NORM, 0);
  const at::Tensor& w = or_undefined(weight);
  const at::Tensor& b = or_undefined(bias);
  npu_reason why = site.wants(input, w, b);
  if (takes(
          is_float(input) && is_tail(input, shape) &&
              is_parameter(w, input, shape) && is_parameter(b, input, shape),
          why)) {
    npu_layer_norm_attrs attrs{};
    attrs.axes = static_cast<std::int64_t>(shape.size());
    attrs.eps = eps;
    c10::DimVector stats(input.sizes());
    std::fill(stats.end() - attrs.axes, stats.end(), 1);
    const c10::ScalarType type = statistics_type(input, w, b);
    at::Tensor out = empty(input, input.sizes(), input.scalar_type());
    at::Tensor mean = empty(input, stats, type);
    at::Tensor rstd = empty(input, stats, type);
    Call call = site.call();
    build::layer_norm(
        call,
        to_operand(out),
        MaybeOperand(mean),
        MaybeOperand(rstd),
        to_operand(input),
        MaybeOperand(w),
        MaybeOperand(b),
        attrs);
    why = site.run(call, input.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(mean), std::move(rstd)};
    }
  }
  return site.cpu(
      why, &at::cpu::native_layer_norm, input, shape, weight, bias, eps);
}

Three layer_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const OptTensor& weight,
    const OptTensor& bias,
    std::array<bool, 3> mask) {
  static NativeSite site(
      "aten::native_layer_norm_backward", NPU_KIND_LAYER_NORM_GRAD, 0);
  const at::Tensor& w = or_undefined(weight);
  const at::Tensor& b = or_undefined(bias);
  npu_reason why = site.wants(input, grad, mean, rstd, w, b);
  if (takes(
          is_float(input) && is_float(grad) && is_tail(input, shape) &&
              grad.sizes() == input.sizes() && is_parameter(w, input, shape) &&
              is_parameter(b, input, shape),
          why)) {
    npu_layer_norm_grad_attrs attrs{};
    attrs.axes = static_cast<std::int64_t>(shape.size());
    at::Tensor grad_in = empty_if(mask[0], input);
    at::Tensor grad_weight = empty_if(mask[1], w);
    at::Tensor grad_bias = empty_if(mask[2], b);
    Call call = site.call();
    build::layer_norm_grad(
        call,
        MaybeOperand(grad_in),
        MaybeOperand(grad_weight),
        MaybeOperand(grad_bias),
        to_operand(grad),
        to_operand(input),
        to_operand(mean),
        to_operand(rstd),
        MaybeOperand(w),
        attrs);
    why = site.run(call, input.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(grad_in), std::move(grad_weight), std::move(grad_bias)};
    }
  }
  return site.cpu(
      why,
      &at::cpu::native_layer_norm_backward,
      grad,
      input,
      shape,
      mean,
      rstd,
      weight,
      bias,
      mask);
}

// ---- rms norm ----

// Of the last `shape.size()` dimensions.
c10::DimVector trailing_dims(at::IntArrayRef shape) {
  c10::DimVector dims;
  for (std::size_t i = shape.size(); i > 0; --i) {
    dims.push_back(-static_cast<std::int64_t>(i));
  }
  return dims;
}

// A weight of another dtype widens the result: PyTorch's composite does that.
bool is_rms_norm(
    const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight) {
  return is_float(input) && is_tail(input, shape) && on_device(input, weight) &&
         (!weight.defined() || (weight.sizes() == shape &&
                                weight.scalar_type() == input.scalar_type()));
}

// CPU's operator is a composite, so where the driver declines it runs here as
// one, on our operators.
Two rms_norm(
    const at::Tensor& input,
    at::IntArrayRef shape,
    const OptTensor& weight,
    std::optional<double> eps) {
  static NativeSite site("aten::_fused_rms_norm", NPU_KIND_RMS_NORM, 0);
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(input, w);
  if (takes(is_rms_norm(input, shape, w), why)) {
    const c10::ScalarType wide = at::toOpMathType(input.scalar_type());
    npu_rms_norm_attrs attrs{};
    attrs.axes = static_cast<std::int64_t>(shape.size());
    attrs.eps = eps.value_or(
        wide == at::kDouble ? std::numeric_limits<double>::epsilon()
                            : std::numeric_limits<float>::epsilon());
    c10::DimVector stats(input.sizes());
    std::fill(stats.end() - attrs.axes, stats.end(), 1);
    at::Tensor out = empty(input, input.sizes(), input.scalar_type());
    at::Tensor rstd = empty(input, stats, wide);
    Call call = site.call();
    build::rms_norm(
        call,
        to_operand(out),
        MaybeOperand(rstd),
        to_operand(input),
        MaybeOperand(w),
        attrs);
    why = site.run(call, input.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(rstd)};
    }
  }
  return at::compositeimplicitautograd::_fused_rms_norm(
      input, shape, weight, eps);
}

// With h = input * rstd and g = grad * weight: rstd * (g - h * mean(g * h)).
Two rms_norm_backward_of_parts(
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    std::array<bool, 2> mask) {
  const c10::ScalarType wide = at::toOpMathType(input.scalar_type());
  const at::Tensor dy = grad.to(wide);
  const at::Tensor h = input.to(wide).mul(rstd);
  Two grads;
  if (mask[0]) {
    const at::Tensor g = weight.defined() ? dy.mul(weight) : dy;
    const at::Tensor mean =
        g.mul(h).mean(trailing_dims(shape), /*keepdim=*/true);
    std::get<0>(grads) =
        at::addcmul(g, h, mean, -1).mul_(rstd).to(input.scalar_type());
  }
  if (mask[1] && weight.defined()) {
    const at::Tensor product = dy.mul(h);
    std::get<1>(grads) =
        product.sum_to_size(weight.sizes()).to(weight.scalar_type());
  }
  return grads;
}

Two rms_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& rstd,
    const OptTensor& weight,
    std::array<bool, 2> mask) {
  static NativeSite site(
      "aten::_fused_rms_norm_backward", NPU_KIND_RMS_NORM_GRAD, 0);
  const at::Tensor& w = or_undefined(weight);
  check_same_device(site.overload(), {&grad, &input, &rstd, &w});
  npu_reason why = site.wants(input, grad, rstd, w);
  if (takes(
          is_rms_norm(input, shape, w) && grad.sizes() == input.sizes() &&
              grad.scalar_type() == input.scalar_type(),
          why)) {
    npu_rms_norm_grad_attrs attrs{};
    attrs.axes = static_cast<std::int64_t>(shape.size());
    at::Tensor grad_in = empty_if(mask[0], input);
    at::Tensor grad_weight = empty_if(mask[1], w);
    Call call = site.call();
    build::rms_norm_grad(
        call,
        MaybeOperand(grad_in),
        MaybeOperand(grad_weight),
        to_operand(grad),
        to_operand(input),
        to_operand(rstd),
        MaybeOperand(w),
        attrs);
    why = site.run(call, input.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(grad_in), std::move(grad_weight)};
    }
  }
  return rms_norm_backward_of_parts(grad, input, shape, rstd, w, mask);
}

// ---- group norm ----

bool is_image_batch(
    const at::Tensor& input,
    std::int64_t n,
    std::int64_t c,
    std::int64_t plane,
    std::int64_t groups) {
  return is_float(input) && input.dim() >= 2 && input.size(0) == n &&
         input.size(1) == c && input.numel() == n * c * plane && groups > 0 &&
         c % groups == 0;
}

Three group_norm(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    std::int64_t n,
    std::int64_t c,
    std::int64_t plane,
    std::int64_t groups,
    double eps) {
  static NativeSite site("aten::native_group_norm", NPU_KIND_GROUP_NORM, 0);
  const at::Tensor& w = or_undefined(weight);
  const at::Tensor& b = or_undefined(bias);
  npu_reason why = site.wants(input, w, b);
  if (takes(
          is_image_batch(input, n, c, plane, groups) &&
              is_parameter(w, input, {c}) && is_parameter(b, input, {c}),
          why)) {
    npu_group_norm_attrs attrs{};
    attrs.groups = groups;
    attrs.eps = eps;
    const c10::ScalarType type = statistics_type(input, w, b);
    at::Tensor out = empty(
        input,
        input.sizes(),
        input.scalar_type(),
        input.suggest_memory_format());
    at::Tensor mean = empty(input, {n, groups}, type);
    at::Tensor rstd = empty(input, {n, groups}, type);
    Call call = site.call();
    build::group_norm(
        call,
        to_operand(out),
        MaybeOperand(mean),
        MaybeOperand(rstd),
        to_operand(input),
        MaybeOperand(w),
        MaybeOperand(b),
        attrs);
    why = site.run(call, input.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(mean), std::move(rstd)};
    }
  }
  return site.cpu(
      why,
      &at::cpu::native_group_norm,
      input,
      weight,
      bias,
      n,
      c,
      plane,
      groups,
      eps);
}

Three group_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const OptTensor& weight,
    std::int64_t n,
    std::int64_t c,
    std::int64_t plane,
    std::int64_t groups,
    std::array<bool, 3> mask) {
  static NativeSite site(
      "aten::native_group_norm_backward", NPU_KIND_GROUP_NORM_GRAD, 0);
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(input, grad, mean, rstd, w);
  const bool weights = mask[1] || mask[2];
  if (takes(
          is_image_batch(input, n, c, plane, groups) &&
              grad.sizes() == input.sizes() &&
              grad.scalar_type() == input.scalar_type() &&
              is_parameter(w, input, {c}) && (w.defined() || !weights),
          why)) {
    npu_group_norm_grad_attrs attrs{};
    attrs.groups = groups;
    at::Tensor grad_in = mask[0] ? empty(
                                       input,
                                       input.sizes(),
                                       input.scalar_type(),
                                       input.suggest_memory_format())
                                 : at::Tensor();
    at::Tensor grad_weight = empty_if(mask[1], w);
    at::Tensor grad_bias = empty_if(mask[2], w);
    Call call = site.call();
    build::group_norm_grad(
        call,
        MaybeOperand(grad_in),
        MaybeOperand(grad_weight),
        MaybeOperand(grad_bias),
        to_operand(grad),
        to_operand(input),
        to_operand(mean),
        to_operand(rstd),
        MaybeOperand(w),
        attrs);
    why = site.run(call, input.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(grad_in), std::move(grad_weight), std::move(grad_bias)};
    }
  }
  return site.cpu(
      why,
      &at::cpu::native_group_norm_backward,
      grad,
      input,
      mean,
      rstd,
      weight,
      n,
      c,
      plane,
      groups,
      mask);
}

// ---- weight norm ----

// One norm per slice along the first or the last dimension.
bool is_weight(const at::Tensor& v, const at::Tensor& g, std::int64_t dim) {
  return is_float(v) && g.scalar_type() == v.scalar_type() &&
         v.is_contiguous() && g.is_contiguous() &&
         (dim == 0 || dim == v.dim() - 1) && v.dim() > 0 &&
         g.numel() == v.size(dim);
}

Two weight_norm(const at::Tensor& v, const at::Tensor& g, std::int64_t dim) {
  static NativeSite site(
      "aten::_weight_norm_interface", NPU_KIND_WEIGHT_NORM, 0);
  npu_reason why = site.wants(v, g);
  if (takes(is_weight(v, g, dim), why)) {
    npu_weight_norm_attrs attrs{};
    attrs.dim = dim;
    const c10::ScalarType type = is_half(v) ? at::kFloat : g.scalar_type();
    at::Tensor out = empty(v, v.sizes(), v.scalar_type());
    at::Tensor norms = empty(v, g.sizes(), type);
    Call call = site.call();
    build::weight_norm(
        call,
        to_operand(out),
        MaybeOperand(norms),
        to_operand(v),
        to_operand(g),
        attrs);
    why = site.run(call, v.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(norms)};
    }
  }
  return site.cpu(why, &at::cpu::_weight_norm_interface, v, g, dim);
}

Two weight_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& v,
    const at::Tensor& g,
    const at::Tensor& norms,
    std::int64_t dim) {
  static NativeSite site(
      "aten::_weight_norm_interface_backward", NPU_KIND_WEIGHT_NORM_GRAD, 0);
  npu_reason why = site.wants(v, grad, g, norms);
  if (takes(
          is_weight(v, g, dim) && grad.is_contiguous() &&
              grad.sizes() == v.sizes() &&
              grad.scalar_type() == v.scalar_type() &&
              norms.numel() == g.numel(),
          why)) {
    npu_weight_norm_grad_attrs attrs{};
    attrs.dim = dim;
    at::Tensor grad_v = empty(v, v.sizes(), v.scalar_type());
    at::Tensor grad_g = empty(v, g.sizes(), g.scalar_type());
    Call call = site.call();
    build::weight_norm_grad(
        call,
        to_operand(grad_v),
        to_operand(grad_g),
        to_operand(grad),
        to_operand(v),
        to_operand(g),
        to_operand(norms),
        attrs);
    why = site.run(call, v.device().index());
    if (why == NPU_REASON_NONE) {
      return {std::move(grad_v), std::move(grad_g)};
    }
  }
  return site.cpu(
      why, &at::cpu::_weight_norm_interface_backward, grad, v, g, norms, dim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", TORCH_FN(layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  m.impl("_fused_rms_norm", TORCH_FN(rms_norm));
  m.impl("_fused_rms_norm_backward", TORCH_FN(rms_norm_backward));
  m.impl("native_group_norm", TORCH_FN(group_norm));
  m.impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
  m.impl("_weight_norm_interface", TORCH_FN(weight_norm));
  m.impl("_weight_norm_interface_backward", TORCH_FN(weight_norm_backward));
}

}  // namespace npu
