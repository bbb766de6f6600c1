// SPDX-License-Identifier: Apache-2.0
// Fused optimizers and loss scaling: one call for all parameters.
#include <torch/library.h>

#include <optional>
#include <type_traits>

#include "aten/core/frame.h"
#include "aten/core/list_frame.h"
#include "aten/core/site.h"
#include "aten/ladder/ladder.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using List = at::TensorList;
using OptTensor = std::optional<at::Tensor>;
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

npu_tensor optional_operand(const at::Tensor& tensor) {
  return tensor.defined() ? to_operand(tensor) : npu_tensor{};
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
  const npu_tensor lr = optional_operand(roles.lr);
  const npu_tensor scale = optional_operand(roles.grad_scale);
  const npu_tensor found = optional_operand(roles.found_inf);
  Call call = site.call();
  build::optimizer(
      call,
      &lr,
      &scale,
      &found,
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

const at::Tensor& or_undefined(const OptTensor& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}

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
  const auto run = [&] {
    const c10::Device device = grads[0].device();
    if (!goes_as_lists(grads, {}) || !writes_apart(grads, {}) ||
        !is_number(found_inf, device) || !is_number(inv_scale, device) ||
        found_inf.scalar_type() != at::kFloat ||
        inv_scale.scalar_type() != at::kFloat) {
      return false;
    }
    ListFrame lists(grads);
    if (lists.n() == 0) {
      return true;
    }
    Call call = site.call();
    build::amp_unscale(
        call, to_operand(found_inf), to_operand(inv_scale), lists.of(grads));
    return site.run(call, device.index()) == NPU_REASON_NONE;
  };
  if (!run()) {
    static const CpuOp op(kName, "", kName);
    op.call<void>(grads, found_inf, inv_scale);
  }
}

at::Tensor& update_scale(
    at::Tensor& scale,
    at::Tensor& growth_tracker,
    const at::Tensor& found_inf,
    double growth_factor,
    double backoff_factor,
    std::int64_t growth_interval) {
  constexpr StaticName kName = "aten::_amp_update_scale_";
  static Site site(kName, NPU_KIND_AMP_UPDATE_SCALE, 0);
  const auto run = [&] {
    const c10::Device device = scale.device();
    if (!is_number(scale, device) || !is_number(found_inf, device) ||
        scale.scalar_type() != at::kFloat ||
        found_inf.scalar_type() != at::kFloat ||
        growth_tracker.scalar_type() != at::kInt ||
        growth_tracker.numel() != 1 || growth_tracker.device() != device) {
      return false;
    }
    npu_amp_update_scale_attrs attrs{};
    attrs.growth_factor = growth_factor;
    attrs.backoff_factor = backoff_factor;
    attrs.growth_interval = growth_interval;
    Call call = site.call();
    build::amp_update_scale(
        call,
        to_operand(scale),
        to_operand(growth_tracker),
        to_operand(found_inf),
        attrs);
    return site.run(call, device.index()) == NPU_REASON_NONE;
  };
  if (!run()) {
    static const CpuOp op(kName, "", kName);
    op.call<void>(
        scale,
        growth_tracker,
        found_inf,
        growth_factor,
        backoff_factor,
        growth_interval);
  }
  return scale;
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
  m.impl("_amp_update_scale_", &update_scale);
}

}  // namespace npu
