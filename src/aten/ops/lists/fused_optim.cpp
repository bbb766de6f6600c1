// SPDX-License-Identifier: Apache-2.0
// Fused optimizers and loss scaling: one call for all parameters.
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

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

// Whether a kernel may walk a list's memory in the order of the parameters'.
bool in_order(List params, List list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_non_overlapping_and_dense() ||
        list[i].strides() != params[i].strides()) {
      return false;
    }
  }
  return true;
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// The operator of a site again, for other tensors.
void step_again(
    const NativeSite& site, const Roles& on, const npu_optimizer_attrs& with) {
  const double lr = on.lr.defined() ? on.lr.item<double>() : with.lr;
  const auto scale = optional(on.grad_scale);
  const auto found = optional(on.found_inf);
  const auto adam = [&](auto op) {
    op(on.params,
       on.grads,
       on.state1,
       on.state2,
       on.state3,
       on.steps,
       lr,
       with.beta1,
       with.beta2,
       with.weight_decay,
       with.eps,
       with.amsgrad != 0,
       with.maximize != 0,
       scale,
       found);
  };
  switch (site.code()) {
    case NPU_OPTIMIZER_ADAM:
      return adam([](auto&&... all) { at::_fused_adam_(all...); });
    case NPU_OPTIMIZER_ADAMW:
      return adam([](auto&&... all) { at::_fused_adamw_(all...); });
    case NPU_OPTIMIZER_SGD:
      return at::_fused_sgd_(
          on.params,
          on.grads,
          on.state1,
          with.weight_decay,
          with.momentum,
          lr,
          with.dampening,
          with.nesterov != 0,
          with.maximize != 0,
          with.first_step != 0,
          scale,
          found);
    default:
      return at::_fused_adagrad_(
          on.params,
          on.grads,
          on.state1,
          on.steps,
          lr,
          with.lr_decay,
          with.weight_decay,
          with.eps,
          with.maximize != 0,
          scale,
          found);
  }
}

// PyTorch's CPU kernels walk parameters, gradients and states as if they had
// no gaps. Tensors that have some, or another order, take a step on copies.
npu_reason run_step_on_copies(
    const NativeSite& site,
    const Roles& roles,
    const npu_optimizer_attrs& attrs) {
  const std::array<const List*, 5> lists{
      &roles.params, &roles.grads, &roles.state1, &roles.state2, &roles.state3};
  bool whole = true;
  for (const List* const list : lists) {
    whole = whole && (list->empty() || list->size() == roles.params.size());
    for (std::size_t i = 0; whole && i < list->size(); ++i) {
      // Copies of other sizes would differ in strides again.
      whole = (*list)[i].sizes() == roles.params[i].sizes();
    }
  }
  if (!whole || std::all_of(lists.begin(), lists.end(), [&](const List* list) {
        return in_order(roles.params, *list);
      })) {
    return kLeaveToCpu;
  }
  std::array<std::vector<at::Tensor>, 5> copies;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const at::Tensor& tensor : *lists[i]) {
      copies[i].push_back(tensor.clone(at::MemoryFormat::Contiguous));
    }
  }
  Roles dense = roles;
  dense.params = copies[0];
  dense.grads = copies[1];
  dense.state1 = copies[2];
  dense.state2 = copies[3];
  dense.state3 = copies[4];
  step_again(site, dense, attrs);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (lists[i] == &roles.grads && !roles.grad_scale.defined()) {
      continue;  // read only: unscaled gradients are written with a scale
    }
    for (std::size_t j = 0; j < lists[i]->size(); ++j) {
      (*lists[i])[j].copy_(copies[i][j]);
    }
  }
  return NPU_REASON_NONE;
}

npu_reason run_step(NativeSite& site, Roles roles, npu_optimizer_attrs& attrs) {
  // lr is a number or a tensor. One on the host is read here, as PyTorch's CUDA
  // kernels do.
  if (roles.lr.defined() && roles.lr.device().is_cpu()) {
    attrs.lr = roles.lr.item<double>();
    roles.lr.reset();
  }
  if (!goes_in_one_call(roles)) {
    return run_step_on_copies(site, roles, attrs);
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
