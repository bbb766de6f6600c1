// SPDX-License-Identifier: Apache-2.0
// Batch norm through the kinds: the forward of every overload that PyTorch's
// autograd calls. The gradients are in batch_norm_grad.cpp, the pieces for
// several processes in norm_stats.cpp.
#include "aten/ops/norm/batch_norm.h"

#include <ATen/ops/_batch_norm_no_update_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_batch_norm_with_update_cpu_dispatch.h>
#include <ATen/ops/_native_batch_norm_legit_cpu_dispatch.h>
#include <ATen/ops/batch_norm_update_stats_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_cpu_dispatch.h>
#include <torch/library.h>

#include <tuple>

#include "aten/core/factories.h"
#include "aten/ops/operands.h"
#include "driver/build_call.h"

namespace npu {

bool is_channel_batch(const at::Tensor& input) {
  return is_float(input) && input.dim() >= 2 && input.numel() != 0;
}

namespace {

// Where statistics come from: a batch, or those of several.
struct StatsSource {
  at::Tensor input;
  at::Tensor means;
  at::Tensor rstds;
  at::Tensor counts;
};

npu_reason run_stats(
    NativeSite& site,
    const StatsSource& from,
    double momentum,
    double eps,
    const BatchStats& stats) {
  npu_batch_norm_stats_attrs attrs{};
  attrs.momentum = momentum;
  attrs.eps = eps;
  Call call = site.call();
  build::batch_norm_stats(
      call,
      to_operand(stats.mean),
      MaybeOperand(stats.rstd),
      MaybeOperand(stats.var),
      MaybeOperand(stats.running_mean),
      MaybeOperand(stats.running_var),
      MaybeOperand(from.input),
      MaybeOperand(from.means),
      MaybeOperand(from.rstds),
      MaybeOperand(from.counts),
      attrs);
  return site.run(call, stats.mean.device().index());
}

}  // namespace

npu_reason run_stats(
    NativeSite& site,
    const at::Tensor& input,
    double momentum,
    double eps,
    const BatchStats& stats) {
  return run_stats(site, {input, {}, {}, {}}, momentum, eps, stats);
}

npu_reason run_gather(
    NativeSite& site,
    const at::Tensor& means,
    const at::Tensor& rstds,
    const at::Tensor& counts,
    double momentum,
    double eps,
    const BatchStats& stats) {
  return run_stats(site, {{}, means, rstds, counts}, momentum, eps, stats);
}

npu_reason run_apply(
    NativeSite& site,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& scale,
    const at::Tensor& weight,
    const at::Tensor& bias,
    double eps,
    const at::Tensor& out) {
  npu_batch_norm_apply_attrs attrs{};
  attrs.eps = eps;
  Call call = site.call();
  build::batch_norm_apply(
      call,
      to_operand(out),
      to_operand(input),
      to_operand(mean),
      to_operand(scale),
      MaybeOperand(weight),
      MaybeOperand(bias),
      attrs);
  return site.run(call, input.device().index());
}

at::Tensor channel_vector(
    const at::Tensor& input, std::int64_t size, c10::ScalarType type) {
  return make_empty({size}, type, input.device().index());
}

at::Tensor empty_image(const at::Tensor& input) {
  return make_empty(
      input.sizes(),
      input.scalar_type(),
      input.device().index(),
      input.suggest_memory_format());
}

namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;

struct Parameters {
  const at::Tensor& weight;
  const at::Tensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_var;

  // Vectors of one value per channel; running values both or neither.
  bool fit(const at::Tensor& input) const {
    const auto fits = [&](const at::Tensor& t) {
      return is_parameter(t, input, input.sizes().slice(1, 1));
    };
    return fits(weight) && fits(bias) && fits(running_mean) &&
           fits(running_var) && running_mean.defined() == running_var.defined();
  }
  c10::ScalarType type(const at::Tensor& input) const {
    const c10::ScalarType own = statistics_type(input, weight, bias);
    return own == at::kFloat
               ? own
               : statistics_type(input, running_mean, running_var);
  }
};

// Both kinds, or nothing done. Statistics move only when the application is
// sure to follow: a driver that has one kind and lacks the other is not asked.
struct Sites {
  NativeSite stats;
  NativeSite apply;
  NativeSite apply_var;

  explicit Sites(StaticName overload)
      : stats(overload, NPU_KIND_BATCH_NORM_STATS, 0),
        apply(overload, NPU_KIND_BATCH_NORM_APPLY, NPU_BATCH_NORM_APPLY_RSTD),
        apply_var(
            overload, NPU_KIND_BATCH_NORM_APPLY, NPU_BATCH_NORM_APPLY_VAR) {}
};

npu_reason train(
    Sites& sites,
    const at::Tensor& input,
    const Parameters& p,
    double momentum,
    double eps,
    Three& result) {
  npu_reason why = sites.stats.wants(input, p.weight, p.bias, p.running_mean);
  why = why == NPU_REASON_NONE ? sites.apply.wants(input) : why;
  if (!takes(is_channel_batch(input) && p.fit(input), why)) {
    return why;
  }
  // Applied before they are rounded: a half type's digits are too few.
  const c10::ScalarType type = p.type(input);
  const c10::ScalarType wide =
      c10::isReducedFloatingType(type) ? at::kFloat : type;
  const at::Tensor mean = channel_vector(input, input.size(1), wide);
  const at::Tensor rstd = channel_vector(input, input.size(1), wide);
  const BatchStats no_running{mean, rstd, {}, {}, {}};
  why = run_stats(sites.stats, input, momentum, eps, no_running);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  const at::Tensor out = empty_image(input);
  why = run_apply(sites.apply, input, mean, rstd, p.weight, p.bias, eps, out);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  if (p.running_mean.defined()) {
    // Once the output is there: what was declined may be done again elsewhere.
    const BatchStats all{mean, rstd, {}, p.running_mean, p.running_var};
    why = run_stats(sites.stats, input, momentum, eps, all);
  }
  result = {out, mean.to(type), rstd.to(type)};
  return why;
}

npu_reason evaluate(
    Sites& sites,
    const at::Tensor& input,
    const Parameters& p,
    double eps,
    Three& result) {
  npu_reason why =
      sites.apply_var.wants(input, p.weight, p.bias, p.running_mean);
  if (!takes(
          is_channel_batch(input) && p.fit(input) && p.running_mean.defined(),
          why)) {
    return why;
  }
  const c10::ScalarType type = p.type(input);
  const at::Tensor out = empty_image(input);
  result = {
      out, channel_vector(input, 0, type), channel_vector(input, 0, type)};
  return run_apply(
      sites.apply_var,
      input,
      p.running_mean,
      p.running_var,
      p.weight,
      p.bias,
      eps,
      out);
}

Three batch_norm(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    bool training,
    double momentum,
    double eps) {
  static Sites sites("aten::native_batch_norm");
  const Parameters p{
      or_undefined(weight),
      or_undefined(bias),
      or_undefined(running_mean),
      or_undefined(running_var)};
  Three result;
  const npu_reason why = training
                             ? train(sites, input, p, momentum, eps, result)
                             : evaluate(sites, input, p, eps, result);
  return why == NPU_REASON_NONE ? result
                                : sites.stats.cpu(
                                      why,
                                      &at::cpu::native_batch_norm,
                                      input,
                                      weight,
                                      bias,
                                      running_mean,
                                      running_var,
                                      training,
                                      momentum,
                                      eps);
}

Three batch_norm_legit(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    at::Tensor& running_mean,
    at::Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  static Sites sites("aten::_native_batch_norm_legit");
  const Parameters p{
      or_undefined(weight), or_undefined(bias), running_mean, running_var};
  Three result;
  const npu_reason why = training
                             ? train(sites, input, p, momentum, eps, result)
                             : evaluate(sites, input, p, eps, result);
  using Legit = Three (*)(
      const at::Tensor&,
      const OptTensor&,
      const OptTensor&,
      at::Tensor&,
      at::Tensor&,
      bool,
      double,
      double);
  return why == NPU_REASON_NONE
             ? result
             : sites.stats.cpu(
                   why,
                   static_cast<Legit>(&at::cpu::_native_batch_norm_legit),
                   input,
                   weight,
                   bias,
                   running_mean,
                   running_var,
                   training,
                   momentum,
                   eps);
}

Three batch_norm_no_stats(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    bool training,
    double momentum,
    double eps) {
  static Sites sites("aten::_native_batch_norm_legit.no_stats");
  const at::Tensor none;
  const Parameters p{or_undefined(weight), or_undefined(bias), none, none};
  Three result;
  const npu_reason why = training
                             ? train(sites, input, p, momentum, eps, result)
                             : npu_reason{NPU_REASON_ATTRIBUTE};
  using NoStats = Three (*)(
      const at::Tensor&,
      const OptTensor&,
      const OptTensor&,
      bool,
      double,
      double);
  return why == NPU_REASON_NONE
             ? result
             : sites.stats.cpu(
                   why,
                   static_cast<NoStats>(&at::cpu::_native_batch_norm_legit),
                   input,
                   weight,
                   bias,
                   training,
                   momentum,
                   eps);
}

// Mean and variance of the batch; running values move.
Two update_stats(
    const at::Tensor& input,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    double momentum) {
  static NativeSite site(
      "aten::batch_norm_update_stats", NPU_KIND_BATCH_NORM_STATS, 0);
  const at::Tensor none;
  const Parameters p{
      none, none, or_undefined(running_mean), or_undefined(running_var)};
  npu_reason why = site.wants(input, p.running_mean, p.running_var);
  if (takes(is_channel_batch(input) && p.fit(input), why)) {
    const c10::ScalarType type = p.type(input);
    const at::Tensor mean = channel_vector(input, input.size(1), type);
    const at::Tensor var = channel_vector(input, input.size(1), type);
    why = run_stats(
        site,
        input,
        momentum,
        0,
        {mean, {}, var, p.running_mean, p.running_var});
    if (why == NPU_REASON_NONE) {
      return {mean, var};
    }
  }
  return site.cpu(
      why,
      &at::cpu::batch_norm_update_stats,
      input,
      running_mean,
      running_var,
      momentum);
}

// ---- the family with a reserve, which only other backends fill ----

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Four with_reserve(const Three& result, const at::Tensor& input) {
  const auto& [out, mean, rstd] = result;
  return {out, mean, rstd, channel_vector(input, 0, at::kByte)};
}

Four with_update(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    at::Tensor& running_mean,
    at::Tensor& running_var,
    double momentum,
    double eps) {
  static Sites sites("aten::_batch_norm_with_update");
  const Parameters p{
      or_undefined(weight), or_undefined(bias), running_mean, running_var};
  Three result;
  const npu_reason why = train(sites, input, p, momentum, eps, result);
  return why == NPU_REASON_NONE ? with_reserve(result, input)
                                : sites.stats.cpu(
                                      why,
                                      &at::cpu::_batch_norm_with_update,
                                      input,
                                      weight,
                                      bias,
                                      running_mean,
                                      running_var,
                                      momentum,
                                      eps);
}

Four no_update(
    const at::Tensor& input,
    const OptTensor& weight,
    const OptTensor& bias,
    const OptTensor& running_mean,
    const OptTensor& running_var,
    double momentum,
    double eps) {
  static Sites sites("aten::_batch_norm_no_update");
  const Parameters p{
      or_undefined(weight),
      or_undefined(bias),
      or_undefined(running_mean),
      or_undefined(running_var)};
  Three result;
  const npu_reason why = evaluate(sites, input, p, eps, result);
  namespace composite = at::compositeexplicitautograd;
  return why == NPU_REASON_NONE ? with_reserve(result, input)
                                : sites.stats.cpu(
                                      why,
                                      &composite::_batch_norm_no_update,
                                      input,
                                      weight,
                                      bias,
                                      running_mean,
                                      running_var,
                                      momentum,
                                      eps);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(batch_norm));
  m.impl("_native_batch_norm_legit", TORCH_FN(batch_norm_legit));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(batch_norm_no_stats));
  m.impl("batch_norm_update_stats", TORCH_FN(update_stats));
  m.impl("_batch_norm_with_update", TORCH_FN(with_update));
  m.impl("_batch_norm_no_update", TORCH_FN(no_update));
}

}  // namespace npu
