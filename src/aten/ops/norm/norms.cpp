// SPDX-License-Identifier: Apache-2.0
// Layer norm, group norm and weight norm.
#include "aten/ladder/cpu_kernels.h"
#include "aten/ops/op.h"
#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

// ---- layer norm ----

namespace {

// normalized_shape is the input's last sizes, and the parameters have them.
npu_reason check_layer_norm(
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& weight,
    const at::Tensor& bias) {
  const bool tail = !shape.empty() &&
                    static_cast<std::size_t>(input.dim()) >= shape.size() &&
                    input.sizes().slice(input.dim() - shape.size()) == shape;
  return first_failed(
      {{is_float(input) && has_parameter_dtype(weight, input) &&
            has_parameter_dtype(bias, input),
        NPU_REASON_DTYPE},
       {tail && has_sizes(weight, shape) && has_sizes(bias, shape),
        kLeaveToCpu}});
}

// The result, and the statistics of each row.
void set_layer_norm(
    Outputs& out,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& w,
    const at::Tensor& b) {
  c10::DimVector stats(input.sizes());
  std::fill(
      stats.end() - static_cast<std::ptrdiff_t>(shape.size()), stats.end(), 1);
  const auto options = input.options().dtype(statistics_type(input, w, b));
  set_output(out, 0, input.sizes(), input);
  set_output(out, 1, stats, options);
  set_output(out, 2, stats, options);
}

// What CPU's kernel takes as it is: see Note [Direct].
bool is_direct_layer_norm(
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& w,
    const at::Tensor& b) {
  const auto goes_with = [&input](const at::Tensor& parameter) {
    return !parameter.defined() ||
           (same_dtype(parameter, input) && parameter.is_contiguous());
  };
  return check_layer_norm(input, shape, w, b) == NPU_REASON_NONE &&
         !is_half(input) && input.is_contiguous() && goes_with(w) &&
         goes_with(b);
}

}  // namespace

npu_reason layer_norm(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& w,
    const at::Tensor& b,
    double eps) {
  if (const npu_reason why = check_layer_norm(input, shape, w, b)) {
    return why;
  }
  npu_layer_norm_attrs attrs{
      .axes = static_cast<std::int64_t>(shape.size()), .eps = eps};
  set_layer_norm(out, input, shape, w, b);
  return run<build::layer_norm>(
      site, out.at(0), out.at(1), out.at(2), input, w, b, attrs);
}

bool layer_norm_direct(
    Outputs& out,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& w,
    const at::Tensor& b,
    double eps) {
  if (!is_direct_layer_norm(input, shape, w, b)) {
    return false;
  }
  set_layer_norm(out, input, shape, w, b);
  at::Tensor result = out.at(0);
  at::Tensor mean = out.at(1);
  at::Tensor rstd = out.at(2);
  const std::int64_t rows = mean.numel();
  ladder::cpu::layer_norm(
      input, w, b, rows, input.numel() / rows, eps, &result, &mean, &rstd);
  return true;
}

npu_reason layer_norm_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& w,
    const at::Tensor& b,
    std::array<bool, 3> mask) {
  if (const npu_reason why = check_layer_norm(input, shape, w, b)) {
    return why;
  }
  if (!is_float(grad) || grad.sizes() != input.sizes()) {
    return kLeaveToCpu;
  }
  npu_layer_norm_grad_attrs attrs{
      .axes = static_cast<std::int64_t>(shape.size())};
  set_if(out, 0, mask[0], input);
  set_if(out, 1, mask[1], w);
  set_if(out, 2, mask[2], b);
  return run<build::layer_norm_grad>(
      site, out.at(0), out.at(1), out.at(2), grad, input, mean, rstd, w, attrs);
}

bool layer_norm_grad_direct(
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& w,
    const at::Tensor& b,
    std::array<bool, 3> mask) {
  const auto goes_with = [&input](const at::Tensor& tensor) {
    return same_dtype(tensor, input) && tensor.is_contiguous();
  };
  if (!is_direct_layer_norm(input, shape, w, b) || !goes_with(grad) ||
      grad.sizes() != input.sizes() || !goes_with(mean) || !goes_with(rstd) ||
      mean.numel() != rstd.numel() || mean.numel() == 0 ||
      mean.numel() * c10::multiply_integers(shape) != input.numel() ||
      (mask[1] && !w.defined()) || (mask[2] && !b.defined())) {
    return false;
  }
  set_if(out, 0, mask[0], input);
  set_if(out, 1, mask[1], w);
  set_if(out, 2, mask[2], b);
  at::Tensor grad_input = out.at(0);
  at::Tensor grad_weight = out.at(1);
  at::Tensor grad_bias = out.at(2);
  const std::int64_t rows = mean.numel();
  ladder::cpu::layer_norm_backward(
      grad,
      input,
      mean,
      rstd,
      w,
      rows,
      input.numel() / rows,
      &grad_input,
      &grad_weight,
      &grad_bias);
  return true;
}

// ---- group norm ----

namespace {

npu_reason check_group_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    std::int64_t n,
    std::int64_t c,
    std::int64_t plane,
    std::int64_t groups) {
  const bool images = input.dim() >= 2 && input.size(0) == n &&
                      input.size(1) == c && input.numel() == n * c * plane &&
                      groups > 0 && c % groups == 0;
  return first_failed(
      {{is_float(input) && has_parameter_dtype(weight, input) &&
            has_parameter_dtype(bias, input),
        NPU_REASON_DTYPE},
       {images && has_sizes(weight, {c}) && has_sizes(bias, {c}),
        kLeaveToCpu}});
}

}  // namespace

npu_reason group_norm(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& input,
    const at::Tensor& w,
    const at::Tensor& b,
    std::int64_t n,
    std::int64_t c,
    std::int64_t plane,
    std::int64_t groups,
    double eps) {
  if (const npu_reason why =
          check_group_norm(input, w, b, n, c, plane, groups)) {
    return why;
  }
  npu_group_norm_attrs attrs{.groups = groups, .eps = eps};
  const auto options = input.options().dtype(statistics_type(input, w, b));
  set_output(out, 0, input.sizes(), image_options(input));
  set_output(out, 1, {n, groups}, options);
  set_output(out, 2, {n, groups}, options);
  return run<build::group_norm>(
      site, out.at(0), out.at(1), out.at(2), input, w, b, attrs);
}

npu_reason group_norm_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& w,
    std::int64_t n,
    std::int64_t c,
    std::int64_t plane,
    std::int64_t groups,
    std::array<bool, 3> mask) {
  if (const npu_reason why =
          check_group_norm(input, w, {}, n, c, plane, groups)) {
    return why;
  }
  if (!same_dtype(grad, input)) {
    return NPU_REASON_DTYPE;
  }
  if (grad.sizes() != input.sizes() || (!w.defined() && (mask[1] || mask[2]))) {
    return kLeaveToCpu;
  }
  npu_group_norm_grad_attrs attrs{.groups = groups};
  set_if(out, 0, mask[0], input, image_options(input));
  set_if(out, 1, mask[1], w);
  set_if(out, 2, mask[2], w);
  return run<build::group_norm_grad>(
      site, out.at(0), out.at(1), out.at(2), grad, input, mean, rstd, w, attrs);
}

// ---- weight norm ----

namespace {

// One norm per slice along the first or the last dimension.
npu_reason check_weight_norm(
    const at::Tensor& v, const at::Tensor& g, std::int64_t dim) {
  if (!is_float(v) || !same_dtype(g, v)) {
    return NPU_REASON_DTYPE;
  }
  if (!v.is_contiguous() || !g.is_contiguous()) {
    return NPU_REASON_STRIDES;
  }
  return v.dim() > 0 && (dim == 0 || dim == v.dim() - 1) &&
                 g.numel() == v.size(dim)
             ? npu_reason{NPU_REASON_NONE}
             : kLeaveToCpu;
}

}  // namespace

npu_reason weight_norm(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& v,
    const at::Tensor& g,
    std::int64_t dim) {
  if (const npu_reason why = check_weight_norm(v, g, dim)) {
    return why;
  }
  npu_weight_norm_attrs attrs{.dim = dim};
  const c10::ScalarType type = is_half(v) ? at::kFloat : g.scalar_type();
  set_output(out, 0, v.sizes(), v);
  set_output(out, 1, g.sizes(), g.options().dtype(type));
  return run<build::weight_norm>(site, out.at(0), out.at(1), v, g, attrs);
}

npu_reason weight_norm_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& v,
    const at::Tensor& g,
    const at::Tensor& norms,
    std::int64_t dim) {
  if (const npu_reason why = check_weight_norm(v, g, dim)) {
    return why;
  }
  if (const npu_reason why = first_failed(
          {{same_dtype(grad, v), NPU_REASON_DTYPE},
           {grad.is_contiguous(), NPU_REASON_STRIDES},
           {grad.sizes() == v.sizes() && norms.numel() == g.numel(),
            kLeaveToCpu}})) {
    return why;
  }
  npu_weight_norm_grad_attrs attrs{.dim = dim};
  set_output(out, 0, v.sizes(), v);
  set_output(out, 1, g.sizes(), g);
  return run<build::weight_norm_grad>(
      site, out.at(0), out.at(1), grad, v, g, norms, attrs);
}

}  // namespace npu::ops
