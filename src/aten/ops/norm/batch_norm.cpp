// SPDX-License-Identifier: Apache-2.0
// Batch norm and its gradients through the kinds: every overload that PyTorch's
// autograd calls. The pieces for several processes are in norm_stats.cpp.
#include "aten/ops/norm/batch_norm.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/batch_norm_backward_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_backward_cpu_dispatch.h>

#include <tuple>

#include "aten/ops/norm/statistics.h"
#include "attempts/nn.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

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
};

// Statistics are float32 beside halves, as PyTorch's fake kernels and
// accelerators have them. Of an evaluation there are none, as on the CPU.
c10::ScalarType wide_type(const at::Tensor& input) {
  return at::toOpMathType(input.scalar_type());
}
// What the CPU's kernels round them to: the parameters' dtype.
c10::ScalarType cpu_type(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    const OptTensor& running_mean,
    const OptTensor& running_var) {
  const c10::ScalarType own =
      statistics_type(input, or_undefined(weight), or_undefined(bias));
  return own == at::kFloat ? own
                           : statistics_type(
                                 input,
                                 or_undefined(running_mean),
                                 or_undefined(running_var));
}

npu_reason train(
    NativeSite& stats,
    NativeSite& apply,
    NativeSite& whole,
    Outputs& out,
    const at::Tensor& input,
    const Parameters& p,
    double momentum,
    npu_batch_norm_apply_attrs& attrs) {
  const auto options = input.options().dtype(wide_type(input));
  const at::Tensor& mean = set_output(out, 1, {input.size(1)}, options);
  const at::Tensor& rstd = set_output(out, 2, {input.size(1)}, options);
  if (whole.caps() != nullptr) {
    npu_batch_norm_attrs both{.eps = attrs.eps, .momentum = momentum};
    if (run<build::batch_norm>(
            whole,
            out.at(0),
            mean,
            rstd,
            p.running_mean,
            p.running_var,
            input,
            p.weight,
            p.bias,
            nullptr,
            nullptr,
            both) == NPU_REASON_NONE) {
      return NPU_REASON_NONE;
    }
  }
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
  return why;
}

}  // namespace

// In one call where the driver has the kind. Else both kinds, or nothing done.
// Statistics move only when the application is sure to follow: a driver that
// has one kind and lacks the other is not asked.
npu_reason batch_norm(
    NativeSite& stats,
    NativeSite& apply,
    NativeSite& evaluate,
    NativeSite& whole,
    NativeSite& whole_eval,
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
  NativeSite& one = training ? whole : whole_eval;
  const bool has_one = one.caps() != nullptr;
  NativeSite& first = has_one ? one : training ? stats : evaluate;
  npu_reason why = first.wants(input, weight, bias, running_mean);
  if (training && !has_one && why == NPU_REASON_NONE) {
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
    return train(stats, apply, whole, out, input, p, momentum, attrs);
  }
  const auto options = input.options().dtype(wide_type(input));
  set_output(out, 1, {0}, options);
  set_output(out, 2, {0}, options);
  if (has_one) {
    npu_batch_norm_attrs both{.eps = eps, .momentum = momentum};
    const at::Tensor none;
    if (run<build::batch_norm>(
            one,
            out.at(0),
            none,
            none,
            none,
            none,
            input,
            weight,
            bias,
            running_mean,
            running_var,
            both) == NPU_REASON_NONE) {
      return NPU_REASON_NONE;
    }
  }
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
  const auto options = input.options().dtype(wide_type(input));
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
    NativeSite& whole,
    Outputs& out,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    bool training,
    std::array<bool, 3> mask) {
  const bool has_one = whole.caps() != nullptr;
  NativeSite& first = has_one ? whole : reduce;
  npu_reason why = first.wants(input, grad, weight, mean, rstd);
  why = why == NPU_REASON_NONE && !has_one ? apply.wants(input) : why;
  const bool plain = is_channel_batch(input) && is_same_batch(grad, input) &&
                     mean.defined() && rstd.defined() &&
                     mean.numel() == input.size(1) &&
                     rstd.numel() == input.size(1) &&
                     is_parameter(weight, input, input.sizes().slice(1, 1));
  if (!takes(plain, why)) {
    return why;
  }
  const c10::ScalarType wide = wide_type(input);
  const auto options = weight.defined() ? weight.options() : input.options();
  set_if(out, 0, mask[0], input, image_options(input));
  set_if(out, 1, mask[1], mean, options);
  set_if(out, 2, mask[2], mean, options);
  if (has_one && run<build::batch_norm_grad>(
                     whole,
                     out.at(0),
                     out.at(1),
                     out.at(2),
                     grad,
                     input,
                     mean,
                     rstd,
                     weight) == NPU_REASON_NONE) {
    return NPU_REASON_NONE;
  }
  const at::Tensor sum = channel_vector(input, wide, training);
  const at::Tensor sum_in = channel_vector(input, wide, training);
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
    NativeSite& whole,
    NativeSite& whole_eval,
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
        whole,
        out,
        grad,
        input,
        weight,
        save_mean,
        save_rstd,
        true,
        mask);
  }
  NativeSite& first = whole_eval.caps() != nullptr ? whole_eval : evaluate;
  npu_reason why = first.wants(input, grad, mean, var);
  if (!takes(mean.defined() && var.defined() && is_float(var), why)) {
    return why;
  }
  const at::Tensor rstd =
      var.to(at::toOpMathType(var.scalar_type())).add(eps).rsqrt_();
  return run_grad(
      reduce,
      evaluate,
      whole_eval,
      out,
      grad,
      input,
      weight,
      mean,
      rstd,
      false,
      mask);
}

// ---- on the CPU rung ----

// Statistics as results have them.
Three wide_statistics(Three made, const at::Tensor& input) {
  auto& [out, mean, rstd] = made;
  return {out, mean.to(wide_type(input)), rstd.to(wide_type(input))};
}

Four wide_statistics(Four made, const at::Tensor& input) {
  auto& [out, mean, rstd, reserve] = made;
  return {out, mean.to(wide_type(input)), rstd.to(wide_type(input)), reserve};
}

Two wide_statistics(Two made, const at::Tensor& input) {
  auto& [mean, var] = made;
  return {mean.to(wide_type(input)), var.to(wide_type(input))};
}

Three batch_norm_grad_on_cpu(
    NativeSite& site,
    npu_reason why,
    const at::Tensor& grad,
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& mean,
    const OptTensor& var,
    const OptTensor& save_mean,
    const OptTensor& save_rstd,
    bool training,
    double eps,
    std::array<bool, 3> mask) {
  const c10::ScalarType type = cpu_type(input, weight, {}, mean, var);
  return site.cpu(
      why,
      &at::cpu::native_batch_norm_backward,
      grad,
      input,
      weight,
      mean,
      var,
      for_kernel(save_mean, type),
      for_kernel(save_rstd, type),
      training,
      eps,
      mask);
}

Three batch_norm_grad_with_reserve_on_cpu(
    NativeSite& site,
    npu_reason why,
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const OptTensor& mean,
    const OptTensor& var,
    const OptTensor& save_mean,
    const OptTensor& save_var,
    bool training,
    double eps,
    std::array<bool, 3> mask,
    const at::Tensor& reserve) {
  const c10::ScalarType type = cpu_type(input, weight, {}, mean, var);
  return site.cpu(
      why,
      &at::cpu::batch_norm_backward,
      grad,
      input,
      weight,
      mean,
      var,
      for_kernel(save_mean, type),
      for_kernel(save_var, type),
      training,
      eps,
      mask,
      reserve);
}

}  // namespace npu::ops
