// SPDX-License-Identifier: Apache-2.0
// Softmax and log_softmax, and softmax under a mask.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>

#include "aten/core/copy.h"
#include "aten/ops/op.h"
#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

npu_reason run_softmax(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& mask,
    const at::Tensor& out) {
  npu_softmax_attrs attrs{.dim = at::maybe_wrap_dim(dim, self.dim())};
  return run<build::softmax>(site, out, self, mask, attrs);
}

npu_reason run_softmax_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& output,
    std::int64_t dim,
    const at::Tensor& mask,
    const at::Tensor& grad_in) {
  npu_softmax_grad_attrs attrs{.dim = at::maybe_wrap_dim(dim, grad.dim())};
  return run<build::softmax_grad>(site, grad_in, grad, output, mask, attrs);
}

// Only the plain form: a mask of the input's sizes.
npu_reason check_masked(const at::Tensor& self, const at::Tensor& mask) {
  return first_failed(
      {{is_float(self) && mask.scalar_type() == at::kBool, NPU_REASON_DTYPE},
       {mask.sizes() == self.sizes() && self.dim() > 0, kLeaveToCpu}});
}

}  // namespace

npu_reason softmax(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool half_to_float,
    const at::Tensor& out) {
  if (!half_to_float) {
    return run_softmax(site, self, dim, {}, out);
  }
  // The CPU has no such kernel: in two steps.
  TORCH_CHECK(
      self.scalar_type() == at::kHalf,
      "npu: softmax: half_to_float is for float16, got ",
      self.scalar_type(),
      ". Pass half_to_float=False.");
  const at::Tensor wide = self.to(at::kFloat);
  copy(
      out,
      site.code() == NPU_SOFTMAX_LOG ? at::_log_softmax(wide, dim, false)
                                     : at::_softmax(wide, dim, false),
      false);
  return NPU_REASON_NONE;
}

npu_reason softmax_grad(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& output,
    std::int64_t dim,
    at::ScalarType input_dtype,
    const at::Tensor& grad_in) {
  const at::ScalarType type = grad.scalar_type();
  if (input_dtype == type) {
    return run_softmax_grad(site, grad, output, dim, {}, grad_in);
  }
  copy(
      grad_in,
      site.code() == NPU_SOFTMAX_GRAD_LOG
          ? at::_log_softmax_backward_data(grad, output, dim, type)
          : at::_softmax_backward_data(grad, output, dim, type),
      false);
  return NPU_REASON_NONE;
}

npu_reason masked_softmax(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& mask,
    std::optional<std::int64_t> dim,
    std::optional<std::int64_t> mask_type) {
  if (const npu_reason why = check_masked(self, mask)) {
    return why;
  }
  if (mask_type.value_or(2) != 2) {
    return NPU_REASON_ATTRIBUTE;
  }
  set_output(out, 0, self.sizes(), self);
  const std::int64_t last = self.dim() - 1;
  return run_softmax(site, self, dim.value_or(last), mask, out.at(0));
}

npu_reason masked_softmax_grad(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& mask,
    std::optional<std::int64_t> dim) {
  if (const npu_reason why = check_masked(grad, mask)) {
    return why;
  }
  if (output.sizes() != grad.sizes()) {
    return kLeaveToCpu;
  }
  set_output(out, 0, grad.sizes(), grad);
  const std::int64_t last = grad.dim() - 1;
  return run_softmax_grad(
      site, grad, output, dim.value_or(last), mask, out.at(0));
}

}  // namespace npu::ops
