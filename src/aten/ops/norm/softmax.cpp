// SPDX-License-Identifier: Apache-2.0
// Softmax and log_softmax: frames for the structured groups that
// ops/aten/normalise.yaml names; masked softmax, which is none, by hand.
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_masked_softmax_backward_cpu_dispatch.h>
#include <ATen/ops/_masked_softmax_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/ops/operands.h"
#include "driver/build_call.h"
#include "impls.h"

namespace at_npu::native {

using namespace npu;

npu_reason softmax_out(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    bool half_to_float,
    const at::Tensor& out) {
  if (half_to_float) {
    return NPU_REASON_DTYPE;  // the CPU rung refuses it
  }
  npu_softmax_attrs attrs{};
  attrs.dim = at::maybe_wrap_dim(dim, self.dim());
  Call call = site.call();
  build::softmax(call, to_operand(out), to_operand(self), nullptr, attrs);
  return site.run(call, self.device().index());
}

npu_reason softmax_grad_out(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& output,
    std::int64_t dim,
    at::ScalarType input_dtype,
    const at::Tensor& grad_input) {
  if (input_dtype != grad.scalar_type()) {
    return NPU_REASON_DTYPE;
  }
  npu_softmax_grad_attrs attrs{};
  attrs.dim = at::maybe_wrap_dim(dim, grad.dim());
  Call call = site.call();
  build::softmax_grad(
      call,
      to_operand(grad_input),
      to_operand(grad),
      to_operand(output),
      nullptr,
      attrs);
  return site.run(call, grad.device().index());
}

}  // namespace at_npu::native

namespace npu {
namespace {

// Only the plain form: a mask of the input's sizes and a dimension.
at::Tensor masked_softmax(
    const at::Tensor& self,
    const at::Tensor& mask,
    std::optional<std::int64_t> dim,
    std::optional<std::int64_t> mask_type) {
  static NativeSite site(
      "aten::_masked_softmax", NPU_KIND_SOFTMAX, NPU_SOFTMAX_MASKED);
  npu_reason why = site.wants(self, mask);
  const bool plain = is_float(self) && mask.scalar_type() == at::kBool &&
                     mask.sizes() == self.sizes() && self.dim() > 0 &&
                     mask_type.value_or(2) == 2;
  if (takes(plain, why)) {
    npu_softmax_attrs attrs{};
    attrs.dim = at::maybe_wrap_dim(dim.value_or(self.dim() - 1), self.dim());
    at::Tensor out =
        make_empty(self.sizes(), self.scalar_type(), self.device().index());
    const npu_tensor hidden = to_operand(mask);
    Call call = site.call();
    build::softmax(call, to_operand(out), to_operand(self), &hidden, attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::_masked_softmax, self, mask, dim, mask_type);
}

at::Tensor masked_softmax_backward(
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& mask,
    std::optional<std::int64_t> dim) {
  static NativeSite site(
      "aten::_masked_softmax_backward",
      NPU_KIND_SOFTMAX_GRAD,
      NPU_SOFTMAX_GRAD_MASKED);
  npu_reason why = site.wants(grad, output, mask);
  const bool plain = is_float(grad) && mask.scalar_type() == at::kBool &&
                     mask.sizes() == grad.sizes() && grad.dim() > 0 &&
                     output.sizes() == grad.sizes();
  if (takes(plain, why)) {
    npu_softmax_grad_attrs attrs{};
    attrs.dim = at::maybe_wrap_dim(dim.value_or(grad.dim() - 1), grad.dim());
    at::Tensor out =
        make_empty(grad.sizes(), grad.scalar_type(), grad.device().index());
    const npu_tensor hidden = to_operand(mask);
    Call call = site.call();
    build::softmax_grad(
        call,
        to_operand(out),
        to_operand(grad),
        to_operand(output),
        &hidden,
        attrs);
    why = site.run(call, grad.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(
      why, &at::cpu::_masked_softmax_backward, grad, output, mask, dim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_masked_softmax", TORCH_FN(masked_softmax));
  m.impl("_masked_softmax_backward", TORCH_FN(masked_softmax_backward));
}

}  // namespace npu
