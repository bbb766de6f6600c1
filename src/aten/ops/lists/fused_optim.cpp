// SPDX-License-Identifier: Apache-2.0
// Fused optimizers and loss scaling: one call for all parameters.
#include <torch/library.h>

#include <type_traits>

#include "aten/core/list_frame.h"
#include "aten/ladder/ladder.h"
#include "aten/ops/op.h"
#include "attempts/foreach.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using List = at::TensorList;
using ladder::CpuOp;

// The lists and 0-dim tensors of one step.
struct Roles {
  List params;
  List grads;
  List state1;
  List state2;
  List state3;
  List steps;
  at::Tensor lr;
  at::Tensor grad_scale;
  at::Tensor found_inf;
};

// A 0-dim operand the kernel can read: on the device of the parameters.
bool is_number(const at::Tensor& tensor, c10::Device device) {
  return tensor.device() == device && tensor.numel() == 1 &&
         at::isFloatingType(tensor.scalar_type());
}

bool goes_in_one_call(const Roles& roles) {
  if (roles.grads.empty() ||
      !goes_as_lists(
          roles.params,
          {roles.grads, roles.state1, roles.state2, roles.state3})) {
    return false;
  }
  const c10::Device device = roles.params[0].device();
  for (const at::Tensor& step : roles.steps) {
    if (!is_number(step, device) ||
        step.scalar_type() != roles.steps[0].scalar_type()) {
      return false;
    }
  }
  if (!roles.steps.empty() && roles.steps.size() != roles.params.size()) {
    return false;
  }
  for (const at::Tensor* tensor :
       {&roles.lr, &roles.grad_scale, &roles.found_inf}) {
    if (tensor->defined() && !is_number(*tensor, device)) {
      return false;
    }
  }
  return writes_apart(
             roles.params,
             {roles.grads, roles.state1, roles.state2, roles.state3}) &&
         writes_apart(
             roles.state1.empty() ? roles.grads : roles.state1,
             {roles.state2, roles.state3});
}

bool run_step(Site& site, const Roles& roles, npu_optimizer_attrs& attrs) {
  if (!goes_in_one_call(roles)) {
    return false;
  }
  ListFrame lists(roles.params);
  if (lists.n() == 0) {
    return true;
  }
  const auto optional = [&](List list) {
    return list.empty() ? npu_list{} : lists.of(list);
  };
  const npu_list state1 = optional(roles.state1);
  const npu_list state2 = optional(roles.state2);
  const npu_list state3 = optional(roles.state3);
  const npu_list steps =
      roles.steps.empty() ? npu_list{} : lists.single_of(roles.steps);
  Call call = site.call();
  fill<build::optimizer>(
      call,
      roles.lr,
      roles.grad_scale,
      roles.found_inf,
      lists.of(roles.params),
      lists.of(roles.grads),
      &state1,
      &state2,
      &state3,
      &steps,
      attrs);
  return site.run(call, roles.params[0].device().index()) == NPU_REASON_NONE;
}

// lr as a number or as a tensor: overloads "" and "tensor_lr". A tensor on the
// host is read here, as PyTorch's CUDA kernels do.
struct Rate {
  Rate(double value) : number(value) {}
  Rate(const at::Tensor& value) {
    if (value.device().is_cpu()) {
      number = value.item<double>();
    } else {
      tensor = value;
    }
  }
  double number = 0;
  at::Tensor tensor;
};

template <class Lr>
constexpr const char* kOverload = std::is_same_v<Lr, double> ? "" : "tensor_lr";

template <std::uint32_t kCode, class Lr>
void fused_adam(
    List params,
    List grads,
    List exp_avgs,
    List exp_avg_sqs,
    List max_exp_avg_sqs,
    List steps,
    Lr lr,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const OptTensor& grad_scale,
    const OptTensor& found_inf) {
  constexpr StaticName kName = kCode == NPU_OPTIMIZER_ADAM
                                   ? StaticName("aten::_fused_adam_")
                                   : StaticName("aten::_fused_adamw_");
  static Site site(kName, NPU_KIND_OPTIMIZER, kCode);
  const Rate rate(lr);
  npu_optimizer_attrs attrs{};
  attrs.lr = rate.number;
  attrs.beta1 = beta1;
  attrs.beta2 = beta2;
  attrs.weight_decay = weight_decay;
  attrs.eps = eps;
  attrs.amsgrad = amsgrad;
  attrs.maximize = maximize;
  const Roles roles{
      params,
      grads,
      exp_avgs,
      exp_avg_sqs,
      amsgrad ? max_exp_avg_sqs : List(),
      steps,
      rate.tensor,
      or_undefined(grad_scale),
      or_undefined(found_inf)};
  const bool complete = !exp_avgs.empty() && !exp_avg_sqs.empty() &&
                        !steps.empty() &&
                        (!amsgrad || !max_exp_avg_sqs.empty());
  if (!complete || !run_step(site, roles, attrs)) {
    static const CpuOp op(kName, kOverload<Lr>, kName);
    op.call<void>(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        steps,
        lr,
        beta1,
        beta2,
        weight_decay,
        eps,
        amsgrad,
        maximize,
        grad_scale,
        found_inf);
  }
}

template <class Lr>
void fused_sgd(
    List params,
    List grads,
    List buffers,
    double weight_decay,
    double momentum,
    Lr lr,
    double dampening,
    bool nesterov,
    bool maximize,
    bool is_first_step,
    const OptTensor& grad_scale,
    const OptTensor& found_inf) {
  constexpr StaticName kName = "aten::_fused_sgd_";
  static Site site(kName, NPU_KIND_OPTIMIZER, NPU_OPTIMIZER_SGD);
  const Rate rate(lr);
  npu_optimizer_attrs attrs{};
  attrs.lr = rate.number;
  attrs.weight_decay = weight_decay;
  attrs.momentum = momentum;
  attrs.dampening = dampening;
  attrs.nesterov = nesterov;
  attrs.maximize = maximize;
  attrs.first_step = is_first_step;
  const Roles roles{
      params,
      grads,
      momentum != 0 ? buffers : List(),
      {},
      {},
      {},
      rate.tensor,
      or_undefined(grad_scale),
      or_undefined(found_inf)};
  const bool complete = momentum == 0 || !buffers.empty();
  if (!complete || !run_step(site, roles, attrs)) {
    static const CpuOp op(kName, kOverload<Lr>, kName);
    op.call<void>(
        params,
        grads,
        buffers,
        weight_decay,
        momentum,
        lr,
        dampening,
        nesterov,
        maximize,
        is_first_step,
        grad_scale,
        found_inf);
  }
}

template <class Lr>
void fused_adagrad(
    List params,
    List grads,
    List sums,
    List steps,
    Lr lr,
    double lr_decay,
    double weight_decay,
    double eps,
    bool maximize,
    const OptTensor& grad_scale,
    const OptTensor& found_inf) {
  constexpr StaticName kName = "aten::_fused_adagrad_";
  static Site site(kName, NPU_KIND_OPTIMIZER, NPU_OPTIMIZER_ADAGRAD);
  const Rate rate(lr);
  npu_optimizer_attrs attrs{};
  attrs.lr = rate.number;
  attrs.lr_decay = lr_decay;
  attrs.weight_decay = weight_decay;
  attrs.eps = eps;
  attrs.maximize = maximize;
  const Roles roles{
      params,
      grads,
      sums,
      {},
      {},
      steps,
      rate.tensor,
      or_undefined(grad_scale),
      or_undefined(found_inf)};
  const bool complete = !sums.empty() && !steps.empty();
  if (!complete || !run_step(site, roles, attrs)) {
    static const CpuOp op(kName, kOverload<Lr>, kName);
    op.call<void>(
        params,
        grads,
        sums,
        steps,
        lr,
        lr_decay,
        weight_decay,
        eps,
        maximize,
        grad_scale,
        found_inf);
  }
}

// ---- loss scaling ----

void unscale(List grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  constexpr StaticName kName =
      "aten::_amp_foreach_non_finite_check_and_unscale_";
  static Site site(kName, NPU_KIND_AMP_UNSCALE, 0);
  if (grads.empty()) {
    return;
  }
  const auto runs = [&] {
    const c10::Device device = grads[0].device();
    if (!goes_as_lists(grads, {}) || !writes_apart(grads, {}) ||
        !is_number(found_inf, device) || !is_number(inv_scale, device) ||
        found_inf.scalar_type() != at::kFloat ||
        inv_scale.scalar_type() != at::kFloat) {
      return false;
    }
    ListFrame lists(grads);
    return lists.n() == 0 ||
           run<build::amp_unscale>(
               site, found_inf, inv_scale, lists.of(grads)) == NPU_REASON_NONE;
  };
  if (!runs()) {
    static const CpuOp op(kName, "", kName);
    op.call<void>(grads, found_inf, inv_scale);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using at::Tensor;
  m.impl("_fused_adam_", &fused_adam<NPU_OPTIMIZER_ADAM, double>);
  m.impl(
      "_fused_adam_.tensor_lr", &fused_adam<NPU_OPTIMIZER_ADAM, const Tensor&>);
  m.impl("_fused_adamw_", &fused_adam<NPU_OPTIMIZER_ADAMW, double>);
  m.impl(
      "_fused_adamw_.tensor_lr",
      &fused_adam<NPU_OPTIMIZER_ADAMW, const Tensor&>);
  m.impl("_fused_sgd_", &fused_sgd<double>);
  m.impl("_fused_sgd_.tensor_lr", &fused_sgd<const Tensor&>);
  m.impl("_fused_adagrad_", &fused_adagrad<double>);
  m.impl("_fused_adagrad_.tensor_lr", &fused_adagrad<const Tensor&>);
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &unscale);
}

}  // namespace npu

namespace npu::ops {

npu_reason amp_update_scale(
    NativeSite& site,
    Outputs&,
    const at::Tensor& scale,
    const at::Tensor& growth_tracker,
    const at::Tensor& found_inf,
    double growth_factor,
    double backoff_factor,
    std::int64_t growth_interval) {
  if (const npu_reason why = first_failed(
          {{scale.scalar_type() == at::kFloat &&
                found_inf.scalar_type() == at::kFloat &&
                growth_tracker.scalar_type() == at::kInt,
            NPU_REASON_DTYPE},
           {on_device(scale, growth_tracker, found_inf) && scale.numel() == 1 &&
                found_inf.numel() == 1 && growth_tracker.numel() == 1,
            kLeaveToCpu}})) {
    return why;
  }
  npu_amp_update_scale_attrs attrs{};
  attrs.growth_factor = growth_factor;
  attrs.backoff_factor = backoff_factor;
  attrs.growth_interval = growth_interval;
  return run<build::amp_update_scale>(
      site, scale, growth_tracker, found_inf, attrs);
}

}  // namespace npu::ops
