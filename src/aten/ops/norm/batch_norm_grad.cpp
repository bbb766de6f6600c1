// SPDX-License-Identifier: Apache-2.0
// Batch norm's gradients through the kinds, of training and of evaluation.
#include <ATen/OpMathType.h>
#include <ATen/ops/batch_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_backward_cpu_dispatch.h>
#include <torch/library.h>

#include <tuple>

#include "aten/ops/norm/batch_norm.h"
#include "aten/ops/operands.h"
#include "driver/build_call.h"

namespace npu {

npu_reason run_grad_reduce(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const BatchGrads& grads) {
  Call call = site.call();
  build::batch_norm_grad_reduce(
      call,
      MaybeOperand(grads.sum_grad),
      MaybeOperand(grads.sum_grad_in),
      MaybeOperand(grads.weight),
      MaybeOperand(grads.bias),
      to_operand(grad),
      to_operand(input),
      to_operand(mean),
      to_operand(rstd));
  return site.run(call, input.device().index());
}

npu_reason run_grad_apply(
    NativeSite& site,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    const at::Tensor& sum_grad,
    const at::Tensor& sum_grad_in,
    const at::Tensor& counts,
    const at::Tensor& out) {
  Call call = site.call();
  build::batch_norm_grad_apply(
      call,
      to_operand(out),
      to_operand(grad),
      to_operand(input),
      to_operand(mean),
      to_operand(rstd),
      MaybeOperand(weight),
      MaybeOperand(sum_grad),
      MaybeOperand(sum_grad_in),
      MaybeOperand(counts));
  return site.run(call, input.device().index());
}

namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The gradient's kinds; an evaluation takes its statistics as constants.
struct GradSites {
  NativeSite reduce;
  NativeSite train;
  NativeSite eval;

  explicit GradSites(StaticName overload)
      : reduce(overload, NPU_KIND_BATCH_NORM_GRAD_REDUCE, 0),
        train(
            overload,
            NPU_KIND_BATCH_NORM_GRAD_APPLY,
            NPU_BATCH_NORM_GRAD_APPLY_TRAIN),
        eval(
            overload,
            NPU_KIND_BATCH_NORM_GRAD_APPLY,
            NPU_BATCH_NORM_GRAD_APPLY_EVAL) {}
};

npu_reason run_backward(
    GradSites& sites,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& w,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    bool training,
    std::array<bool, 3> mask,
    Three& result) {
  NativeSite& apply = training ? sites.train : sites.eval;
  npu_reason why = sites.reduce.wants(input, grad, w, mean, rstd);
  why = why == NPU_REASON_NONE ? apply.wants(input) : why;
  const bool plain = is_channel_batch(input) && grad.sizes() == input.sizes() &&
                     grad.scalar_type() == input.scalar_type() &&
                     mean.defined() && rstd.defined() &&
                     mean.numel() == input.size(1) &&
                     rstd.numel() == input.size(1) &&
                     is_parameter(w, input, input.sizes().slice(1, 1));
  if (!takes(plain, why)) {
    return why;
  }
  const std::int64_t c = input.size(1);
  const c10::ScalarType sums =
      is_half(input) ? at::kFloat : input.scalar_type();
  const c10::ScalarType own =
      w.defined() ? w.scalar_type() : statistics_type(input, mean, rstd);
  const auto sum = [&](bool wanted, c10::ScalarType type) {
    return wanted ? channel_vector(input, c, type) : at::Tensor();
  };
  const BatchGrads grads{
      sum(training, sums),
      sum(training, sums),
      sum(mask[1], own),
      sum(mask[2], own)};
  if (training || mask[1] || mask[2]) {
    why = run_grad_reduce(sites.reduce, grad, input, mean, rstd, grads);
  }
  const at::Tensor out = mask[0] ? empty_image(input) : at::Tensor();
  if (why == NPU_REASON_NONE && mask[0]) {
    why = run_grad_apply(
        apply,
        grad,
        input,
        mean,
        rstd,
        w,
        grads.sum_grad,
        grads.sum_grad_in,
        {},
        out);
  }
  result = {out, grads.weight, grads.bias};
  return why;
}

// Of a training step by what it saved, of an evaluation by the running values.
npu_reason run_backward(
    GradSites& sites,
    const at::Tensor& grad,
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    const OptTensor& save_mean,
    const OptTensor& save_rstd,
    bool training,
    double eps,
    std::array<bool, 3> mask,
    Three& result) {
  const at::Tensor& w = or_undefined(weight);
  if (training) {
    const at::Tensor& mean = or_undefined(save_mean);
    const at::Tensor& rstd = or_undefined(save_rstd);
    return run_backward(sites, grad, input, w, mean, rstd, true, mask, result);
  }
  const at::Tensor& mean = or_undefined(running_mean);
  const at::Tensor& var = or_undefined(running_var);
  npu_reason why = sites.eval.wants(input, grad, mean, var);
  if (!takes(mean.defined() && var.defined() && is_float(var), why)) {
    return why;
  }
  const at::Tensor rstd =
      var.to(at::toOpMathType(var.scalar_type())).add(eps).rsqrt_();
  return run_backward(sites, grad, input, w, mean, rstd, false, mask, result);
}

Three native_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    const OptTensor& save_mean,
    const OptTensor& save_rstd,
    bool training,
    double eps,
    std::array<bool, 3> mask) {
  static GradSites sites("aten::native_batch_norm_backward");
  Three result;
  const npu_reason why = run_backward(
      sites,
      grad,
      input,
      weight,
      running_mean,
      running_var,
      save_mean,
      save_rstd,
      training,
      eps,
      mask,
      result);
  return why == NPU_REASON_NONE ? result
                                : sites.reduce.cpu(
                                      why,
                                      &at::cpu::native_batch_norm_backward,
                                      grad,
                                      input,
                                      weight,
                                      running_mean,
                                      running_var,
                                      save_mean,
                                      save_rstd,
                                      training,
                                      eps,
                                      mask);
}

Three backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    const OptTensor& save_mean,
    const OptTensor& save_rstd,
    bool update,
    double eps,
    std::array<bool, 3> mask,
    const at::Tensor& reserve) {
  static GradSites sites("aten::batch_norm_backward");
  Three result;
  const npu_reason why = run_backward(
      sites,
      grad,
      input,
      weight,
      running_mean,
      running_var,
      save_mean,
      save_rstd,
      update,
      eps,
      mask,
      result);
  return why == NPU_REASON_NONE ? result
                                : sites.reduce.cpu(
                                      why,
                                      &at::cpu::batch_norm_backward,
                                      grad,
                                      input,
                                      weight,
                                      running_mean,
                                      running_var,
                                      save_mean,
                                      save_rstd,
                                      update,
                                      eps,
                                      mask,
                                      reserve);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm_backward", TORCH_FN(native_backward));
  m.impl("batch_norm_backward", TORCH_FN(backward));
}

}  // namespace npu
