// SPDX-License-Identifier: Apache-2.0
// Fused optimizers and loss scaling: one call for all parameters.
#include "aten/core/list_frame.h"
#include "aten/ops/op.h"
#include "attempts/foreach.h"
#include "driver/build_call.h"

namespace npu::ops {
namespace {

using List = at::TensorList;

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

npu_reason run_step(NativeSite& site, Roles roles, npu_optimizer_attrs& attrs) {
  // lr is a number or a tensor. One on the host is read here, as PyTorch's CUDA
  // kernels do.
  if (roles.lr.defined() && roles.lr.device().is_cpu()) {
    attrs.lr = roles.lr.item<double>();
    roles.lr.reset();
  }
  if (!goes_in_one_call(roles)) {
    return kLeaveToCpu;
  }
  ListFrame lists(roles.params);
  if (lists.n() == 0) {
    return NPU_REASON_NONE;
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
  return site.run(call, roles.params[0].device().index());
}

}  // namespace

npu_reason fused_adam(
    NativeSite& site,
    Outputs&,
    List params,
    List grads,
    List exp_avgs,
    List exp_avg_sqs,
    List max_exp_avg_sqs,
    List steps,
    double lr,
    const at::Tensor& lr_tensor,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const at::Tensor& grad_scale,
    const at::Tensor& found_inf) {
  if (exp_avgs.empty() || exp_avg_sqs.empty() || steps.empty() ||
      (amsgrad && max_exp_avg_sqs.empty())) {
    return kLeaveToCpu;
  }
  npu_optimizer_attrs attrs{
      .lr = lr,
      .beta1 = beta1,
      .beta2 = beta2,
      .eps = eps,
      .weight_decay = weight_decay,
      .amsgrad = amsgrad,
      .maximize = maximize};
  const Roles roles{
      params,
      grads,
      exp_avgs,
      exp_avg_sqs,
      amsgrad ? max_exp_avg_sqs : List(),
      steps,
      lr_tensor,
      grad_scale,
      found_inf};
  return run_step(site, roles, attrs);
}

npu_reason fused_sgd(
    NativeSite& site,
    Outputs&,
    List params,
    List grads,
    List buffers,
    double weight_decay,
    double momentum,
    double lr,
    const at::Tensor& lr_tensor,
    double dampening,
    bool nesterov,
    bool maximize,
    bool is_first_step,
    const at::Tensor& grad_scale,
    const at::Tensor& found_inf) {
  if (momentum != 0 && buffers.empty()) {
    return kLeaveToCpu;
  }
  npu_optimizer_attrs attrs{
      .lr = lr,
      .weight_decay = weight_decay,
      .momentum = momentum,
      .dampening = dampening,
      .nesterov = nesterov,
      .maximize = maximize,
      .first_step = is_first_step};
  const Roles roles{
      .params = params,
      .grads = grads,
      .state1 = momentum != 0 ? buffers : List(),
      .lr = lr_tensor,
      .grad_scale = grad_scale,
      .found_inf = found_inf};
  return run_step(site, roles, attrs);
}

npu_reason fused_adagrad(
    NativeSite& site,
    Outputs&,
    List params,
    List grads,
    List sums,
    List steps,
    double lr,
    const at::Tensor& lr_tensor,
    double lr_decay,
    double weight_decay,
    double eps,
    bool maximize,
    const at::Tensor& grad_scale,
    const at::Tensor& found_inf) {
  if (sums.empty() || steps.empty()) {
    return kLeaveToCpu;
  }
  npu_optimizer_attrs attrs{
      .lr = lr,
      .eps = eps,
      .weight_decay = weight_decay,
      .lr_decay = lr_decay,
      .maximize = maximize};
  const Roles roles{
      .params = params,
      .grads = grads,
      .state1 = sums,
      .steps = steps,
      .lr = lr_tensor,
      .grad_scale = grad_scale,
      .found_inf = found_inf};
  return run_step(site, roles, attrs);
}

// ---- loss scaling ----

npu_reason amp_unscale(
    NativeSite& site,
    Outputs&,
    List grads,
    const at::Tensor& found_inf,
    const at::Tensor& inv_scale) {
  if (grads.empty()) {
    return NPU_REASON_NONE;
  }
  const c10::Device device = grads[0].device();
  if (!goes_as_lists(grads, {}) || !writes_apart(grads, {}) ||
      !is_number(found_inf, device) || !is_number(inv_scale, device) ||
      found_inf.scalar_type() != at::kFloat ||
      inv_scale.scalar_type() != at::kFloat) {
    return kLeaveToCpu;
  }
  ListFrame lists(grads);
  return lists.n() == 0 ? npu_reason{NPU_REASON_NONE}
                        : run<build::amp_unscale>(
                              site, found_inf, inv_scale, lists.of(grads));
}

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
  npu_amp_update_scale_attrs attrs{
      .growth_factor = growth_factor,
      .backoff_factor = backoff_factor,
      .growth_interval = growth_interval};
  return run<build::amp_update_scale>(
      site, scale, growth_tracker, found_inf, attrs);
}

}  // namespace npu::ops
