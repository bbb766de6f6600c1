// SPDX-License-Identifier: Apache-2.0
// Batch norm and its gradients through the kinds: every overload that PyTorch's
// autograd calls. The pieces for several processes are in norm_stats.cpp.
#include "aten/ops/norm/batch_norm.h"

#include <ATen/OpMathType.h>

#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

struct Parameters {
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_var;

  // Vectors of one value per channel; running values both or neither.
  npu_reason check(const at::Tensor& input) const {
    if (!is_channel_batch(input)) {
      return kLeaveToCpu;
    }
    const auto fits = [&](const at::Tensor& t) {
      return is_parameter(t, input, input.sizes().slice(1, 1));
    };
    return fits(weight) && fits(bias) && fits(running_mean) &&
                   fits(running_var) &&
                   running_mean.defined() == running_var.defined()
               ? npu_reason{NPU_REASON_NONE}
               : kLeaveToCpu;
  }
  c10::ScalarType type(const at::Tensor& input) const {
    const c10::ScalarType own = statistics_type(input, weight, bias);
    return own == at::kFloat
               ? own
               : statistics_type(input, running_mean, running_var);
  }
};

npu_reason train(
    NativeSite& stats,
    NativeSite& apply,
    Outputs& out,
    const at::Tensor& input,
    const Parameters& p,
    double momentum,
    npu_batch_norm_apply_attrs& attrs) {
  const auto options = input.options().dtype(p.type(input));
  const at::Tensor& kept_mean = set_output(out, 1, {input.size(1)}, options);
  const at::Tensor& kept_rstd = set_output(out, 2, {input.size(1)}, options);
  // Applied before they are rounded: a half type's digits are too few.
  const bool round = is_half(kept_mean);
  const at::Tensor mean = round ? channel_vector(input, at::kFloat) : kept_mean;
  const at::Tensor rstd = round ? channel_vector(input, at::kFloat) : kept_rstd;
  const auto run_batch = [&](const at::Tensor& rm, const at::Tensor& rv) {
    return run_stats(stats, input, mean, rstd, {}, rm, rv, momentum, attrs.eps);
  };
  npu_reason why = run_batch({}, {});
  if (why == NPU_REASON_NONE) {
    why = run<build::batch_norm_apply>(
        apply, out.at(0), input, mean, rstd, p.weight, p.bias, attrs);
  }
  if (why == NPU_REASON_NONE && p.running_mean.defined()) {
    // Once the output is there: what was declined may be done again elsewhere.
    why = run_batch(p.running_mean, p.running_var);
  }
  begin_with(kept_mean, mean);
  begin_with(kept_rstd, rstd);
  return why;
}

}  // namespace

// Both kinds, or nothing done. Statistics move only when the application is
// sure to follow: a driver that has one kind and lacks the other is not asked.
npu_reason batch_norm(
    NativeSite& stats,
    NativeSite& apply,
    NativeSite& evaluate,
    Outputs& out,
    bool reserve,
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  const Parameters p{weight, bias, running_mean, running_var};
  NativeSite& first = training ? stats : evaluate;
  npu_reason why = first.wants(input, weight, bias, running_mean);
  if (training && why == NPU_REASON_NONE) {
    why = apply.wants(input);
  }
  if (why == NPU_REASON_NONE) {
    why = p.check(input);
  }
  if (!takes(training || running_mean.defined(), why)) {
    return why;
  }
  npu_batch_norm_apply_attrs attrs{.eps = eps};
  set_output(out, 0, input.sizes(), image_options(input));
  if (reserve) {  // which only other backends fill
    set_output(out, 3, {0}, input.options().dtype(at::kByte));
  }
  if (training) {
    return train(stats, apply, out, input, p, momentum, attrs);
  }
  const auto options = input.options().dtype(p.type(input));
  set_output(out, 1, {0}, options);
  set_output(out, 2, {0}, options);
  return run<build::batch_norm_apply>(
      evaluate,
      out.at(0),
      input,
      running_mean,
      running_var,
      weight,
      bias,
      attrs);
}

// Mean and variance of the batch; running values move.
npu_reason batch_norm_update(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& input,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    double momentum) {
  const at::Tensor none;
  const Parameters p{none, none, running_mean, running_var};
  if (const npu_reason why = p.check(input)) {
    return why;
  }
  const auto options = input.options().dtype(p.type(input));
  const at::Tensor& mean = set_output(out, 0, {input.size(1)}, options);
  const at::Tensor& var = set_output(out, 1, {input.size(1)}, options);
  return run_stats(
      site, input, mean, {}, var, running_mean, running_var, momentum, 0);
}

// ---- gradients ----

namespace {

npu_reason run_grad(
    NativeSite& reduce,
    NativeSite& apply,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    bool training,
    std::array<bool, 3> mask) {
  npu_reason why = reduce.wants(input, grad, weight, mean, rstd);
  why = why == NPU_REASON_NONE ? apply.wants(input) : why;
  const bool plain = is_channel_batch(input) && is_same_batch(grad, input) &&
                     mean.defined() && rstd.defined() &&
                     mean.numel() == input.size(1) &&
                     rstd.numel() == input.size(1) &&
                     is_parameter(weight, input, input.sizes().slice(1, 1));
  if (!takes(plain, why)) {
    return why;
  }
  const c10::ScalarType wide =
      is_half(input) ? at::kFloat : input.scalar_type();
  const auto options = input.options().dtype(
      weight.defined() ? weight.scalar_type()
                       : statistics_type(input, mean, rstd));
  const at::Tensor sum = channel_vector(input, wide, training);
  const at::Tensor sum_in = channel_vector(input, wide, training);
  set_if(out, 0, mask[0], input, image_options(input));
  set_if(out, 1, mask[1], mean, options);
  set_if(out, 2, mask[2], mean, options);
  if (training || mask[1] || mask[2]) {
    why = run<build::batch_norm_grad_reduce>(
        reduce, sum, sum_in, out.at(1), out.at(2), grad, input, mean, rstd);
  }
  if (why != NPU_REASON_NONE || !mask[0]) {
    return why;
  }
  return run<build::batch_norm_grad_apply>(
      apply, out.at(0), grad, input, mean, rstd, weight, sum, sum_in, nullptr);
}

}  // namespace

// Of a training step by what it saved; an evaluation takes the running values,
// as constants.
npu_reason batch_norm_grad(
    NativeSite& reduce,
    NativeSite& apply,
    NativeSite& evaluate,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& mean,
    const at::Tensor& var,
    const at::Tensor& save_mean,
    const at::Tensor& save_rstd,
    bool training,
    double eps,
    std::array<bool, 3> mask) {
  if (training) {
    return run_grad(
        reduce,
        apply,
        out,
        grad,
        input,
        weight,
        save_mean,
        save_rstd,
        true,
        mask);
  }
  npu_reason why = evaluate.wants(input, grad, mean, var);
  if (!takes(mean.defined() && var.defined() && is_float(var), why)) {
    return why;
  }
  const at::Tensor rstd =
      var.to(at::toOpMathType(var.scalar_type())).add(eps).rsqrt_();
  return run_grad(
      reduce, evaluate, out, grad, input, weight, mean, rstd, false, mask);
}

}  // namespace npu::ops
