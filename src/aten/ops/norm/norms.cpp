// SPDX-License-Identifier: Apache-2.0
// Layer norm, group norm and weight norm.
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/native_layer_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
#include <ATen/ops/ones.h>

#include <tuple>

#include "aten/core/factories.h"
#include "aten/host_device/cpu_kernels.h"
#include "aten/ops/norm/statistics.h"
#include "aten/ops/op.h"
#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

// ---- statistics ----

namespace {

// As the driver writes and reads them: float32 beside halves with
// NPU_CAP_WIDE_STATISTICS, else the parameters' dtype. Results and arguments of
// another dtype are converted.
class Statistics {
 public:
  Statistics(
      const Site& site,
      const at::Tensor& input,
      const at::Tensor& w,
      const at::Tensor& b)
      : type_(
            is_wide(site) ? at::toOpMathType(input.scalar_type())
                          : statistics_type(input, w, b)) {}

  at::Tensor read(const at::Tensor& given) const {
    return given.to(type_);
  }
  // run(mean, rstd), into outputs 1 and 2.
  template <class Run>
  npu_reason write(const Outputs& out, const Run& run) const {
    const at::Tensor mean = room(out.at(1));
    const at::Tensor rstd = room(out.at(2));
    const npu_reason why = run(mean, rstd);
    if (why == NPU_REASON_NONE) {
      begin_with(out.at(1), mean);
      begin_with(out.at(2), rstd);
    }
    return why;
  }

 private:
  static bool is_wide(const Site& site) {
    const npu_op_caps* const caps = site.caps();
    return caps != nullptr && (caps->flags & NPU_CAP_WIDE_STATISTICS) != 0;
  }
  at::Tensor room(const at::Tensor& out) const {
    return out.scalar_type() == type_
               ? out
               : make_empty(out.sizes(), type_, out.device().index());
  }

  const c10::ScalarType type_;
};

}  // namespace

// ---- layer norm ----

// Its statistics are float32 beside halves, as PyTorch's fake kernels and
// accelerators have them; the CPU's kernels round them to the parameters'
// dtype.

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
    Outputs& out, const at::Tensor& input, at::IntArrayRef shape) {
  c10::DimVector stats(input.sizes());
  std::fill(
      stats.end() - static_cast<std::ptrdiff_t>(shape.size()), stats.end(), 1);
  const auto options =
      input.options().dtype(at::toOpMathType(input.scalar_type()));
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
  set_layer_norm(out, input, shape);
  return Statistics(site, input, w, b)
      .write(out, [&](const at::Tensor& mean, const at::Tensor& rstd) {
        return run<build::layer_norm>(
            site, out.at(0), mean, rstd, input, w, b, attrs);
      });
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
  set_layer_norm(out, input, shape);
  at::Tensor result = out.at(0);
  at::Tensor mean = out.at(1);
  at::Tensor rstd = out.at(2);
  const std::int64_t rows = mean.numel();
  host_device::cpu::layer_norm(
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
  const Statistics statistics(site, input, w, b);
  return run<build::layer_norm_grad>(
      site,
      out.at(0),
      out.at(1),
      out.at(2),
      grad,
      input,
      statistics.read(mean),
      statistics.read(rstd),
      w,
      attrs);
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
  host_device::cpu::layer_norm_backward(
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

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Three layer_norm_on_cpu(
    NativeSite& site,
    npu_reason why,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const OptTensor& weight,
    const OptTensor& bias,
    double eps) {
  const c10::ScalarType wide = at::toOpMathType(input.scalar_type());
  // The CPU's kernel rounds statistics to the parameters' dtype. Given float32
  // parameters beside halves it computes the same result and does not round.
  const bool widens =
      twin::uses_cpu_functions() &&
      statistics_type(input, or_undefined(weight), or_undefined(bias)) != wide;
  OptTensor w = weight;
  OptTensor b = bias;
  if (widens) {
    w = or_undefined(weight).defined()
            ? weight->to(wide)
            : at::ones(shape, input.options().dtype(wide));
    b = or_undefined(bias).defined() ? OptTensor(bias->to(wide)) : bias;
  }
  const auto [out, mean, rstd] =
      site.cpu(why, &at::cpu::native_layer_norm, input, shape, w, b, eps);
  return {out, mean.to(wide), rstd.to(wide)};
}

Three layer_norm_grad_on_cpu(
    NativeSite& site,
    npu_reason why,
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef shape,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const OptTensor& weight,
    const OptTensor& bias,
    std::array<bool, 3> mask) {
  const at::Tensor& w = or_undefined(weight);
  const at::Tensor& b = or_undefined(bias);
  if (!twin::uses_cpu_functions() || !is_half(input) ||
      statistics_type(input, w, b) == at::kFloat) {
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
  // The CPU's kernel takes no float32 statistics beside halves. It computes in
  // float32, and results are rounded once (ops/wide.yaml).
  const auto wide = [](const at::Tensor& x) {
    return x.defined() ? x.to(at::kFloat) : x;
  };
  const auto as = [](const at::Tensor& made, const at::Tensor& like) {
    return made.defined() ? made.to(like.scalar_type()) : made;
  };
  const auto [dx, dw, db] = site.cpu(
      why,
      &at::cpu::native_layer_norm_backward,
      wide(grad),
      wide(input),
      shape,
      wide(mean),
      wide(rstd),
      w.defined() ? OptTensor(wide(w)) : weight,
      b.defined() ? OptTensor(wide(b)) : bias,
      mask);
  return {as(dx, input), as(dw, w), as(db, b)};
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
  return Statistics(site, input, w, b)
      .write(out, [&](const at::Tensor& mean, const at::Tensor& rstd) {
        return run<build::group_norm>(
            site, out.at(0), mean, rstd, input, w, b, attrs);
      });
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
  const Statistics statistics(site, input, w, {});
  return run<build::group_norm_grad>(
      site,
      out.at(0),
      out.at(1),
      out.at(2),
      grad,
      input,
      statistics.read(mean),
      statistics.read(rstd),
      w,
      attrs);
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
