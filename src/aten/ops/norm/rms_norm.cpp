// SPDX-License-Identifier: Apache-2.0
// Rms norm. CPU's operator is a composite, so where the driver declines it runs
// here as one, on our operators.
#include <ATen/OpMathType.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/addcmul.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

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
  return is_float(input) && !shape.empty() &&
         static_cast<std::size_t>(input.dim()) >= shape.size() &&
         input.sizes().slice(input.dim() - shape.size()) == shape &&
         on_device(input, weight) && has_sizes(weight, shape) &&
         (!weight.defined() || same_dtype(weight, input));
}

at::Tensor empty(
    const at::Tensor& like, at::IntArrayRef sizes, c10::ScalarType type) {
  return make_empty(sizes, type, like.device().index());
}

at::Tensor empty_if(bool wanted, const at::Tensor& like) {
  return wanted && like.defined()
             ? empty(like, like.sizes(), like.scalar_type())
             : at::Tensor();
}

Two rms_norm(
    const at::Tensor& input,
    at::IntArrayRef shape,
    const OptTensor& weight,
    std::optional<double> eps) {
  static NativeSite site("aten::_fused_rms_norm", NPU_KIND_RMS_NORM, 0);
  const at::Tensor& w = or_undefined(weight);
  if (site.wants(input, w) == NPU_REASON_NONE && is_rms_norm(input, shape, w)) {
    const c10::ScalarType wide = at::toOpMathType(input.scalar_type());
    npu_rms_norm_attrs attrs{
        .axes = static_cast<std::int64_t>(shape.size()),
        .eps = eps.value_or(
            wide == at::kDouble ? std::numeric_limits<double>::epsilon()
                                : std::numeric_limits<float>::epsilon())};
    c10::DimVector stats(input.sizes());
    std::fill(stats.end() - attrs.axes, stats.end(), 1);
    at::Tensor out = empty(input, input.sizes(), input.scalar_type());
    at::Tensor rstd = empty(input, stats, wide);
    if (run<build::rms_norm>(site, out, rstd, input, w, attrs) ==
        NPU_REASON_NONE) {
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
  if (site.wants(input, grad, rstd, w) == NPU_REASON_NONE &&
      is_rms_norm(input, shape, w) && grad.sizes() == input.sizes() &&
      grad.scalar_type() == input.scalar_type()) {
    npu_rms_norm_grad_attrs attrs{
        .axes = static_cast<std::int64_t>(shape.size())};
    at::Tensor grad_in = empty_if(mask[0], input);
    at::Tensor grad_weight = empty_if(mask[1], w);
    if (run<build::rms_norm_grad>(
            site, grad_in, grad_weight, grad, input, rstd, w, attrs) ==
        NPU_REASON_NONE) {
      return {std::move(grad_in), std::move(grad_weight)};
    }
  }
  return rms_norm_backward_of_parts(grad, input, shape, rstd, w, mask);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_rms_norm", TORCH_FN(rms_norm));
  m.impl("_fused_rms_norm_backward", TORCH_FN(rms_norm_backward));
}

}  // namespace npu
