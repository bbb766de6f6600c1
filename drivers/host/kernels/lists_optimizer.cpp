// SPDX-License-Identifier: Apache-2.0
// Kind optimizer: one step over all parameters.
#include <cmath>

#include "kernels/lists.h"

namespace npu::host {
namespace {

npu_status invalid(const npu_call& call, const char* what) {
  return fail(
      NPU_E_INVALID,
      "npu: host driver: optimizer %s: %s",
      npu_code_name(call.slot, call.code),
      what);
}

// The lists a code cannot do without.
npu_status check_roles(const npu_call& call, const npu_optimizer_args& args) {
  const bool adam = call.code <= NPU_OPTIMIZER_ADAMW;
  if (args.params == nullptr || args.grads == nullptr) {
    return invalid(call, "params or grads are missing");
  }
  if ((adam || call.code == NPU_OPTIMIZER_ADAGRAD) &&
      (args.state1 == nullptr || args.steps == nullptr)) {
    return invalid(call, "state1 or steps are missing");
  }
  if (adam && (args.state2 == nullptr ||
               (args.attrs.amsgrad && args.state3 == nullptr))) {
    return invalid(call, "state2 or state3 are missing");
  }
  if (npu_status status = check_lists(
          call,
          {args.params, args.grads, args.state1, args.state2, args.state3})) {
    return status;
  }
  for (const npu_list* list :
       {args.grads, args.state1, args.state2, args.state3}) {
    if (list != nullptr && list->dtype != args.params->dtype) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: host driver: optimizer: lists of %s and %s",
          dtype_name(args.params->dtype),
          dtype_name(list->dtype));
    }
  }
  if (args.steps != nullptr &&
      (args.steps->n != args.params->n || args.steps->data == nullptr ||
       list_type(args.steps->dtype) < 0)) {
    return invalid(call, "steps do not fit the parameters");
  }
  return NPU_OK;
}

double number(const npu_tensor* tensor, double otherwise) {
  return tensor == nullptr ? otherwise
                           : read_number(tensor->dtype, tensor->data);
}

// What is the same for all parameters.
StepLine common(const npu_call& call, const npu_optimizer_args& args) {
  const npu_optimizer_attrs& attrs = args.attrs;
  StepLine line{};
  line.grad_scale = number(args.grad_scale, 0);
  line.lr = number(args.lr_tensor, attrs.lr);
  line.weight_decay = attrs.weight_decay;
  line.beta1 = attrs.beta1;
  line.beta2 = attrs.beta2;
  line.eps = attrs.eps;
  line.momentum = attrs.momentum;
  line.dampening = attrs.dampening;
  line.maximize = attrs.maximize;
  line.decoupled = call.code == NPU_OPTIMIZER_ADAMW;
  line.amsgrad = attrs.amsgrad;
  line.nesterov = attrs.nesterov;
  line.first_step = attrs.first_step;
  return line;
}

// What follows from the step a parameter is at.
void set_step(
    StepLine& line, const npu_optimizer_args& args, double lr, std::int64_t i) {
  if (args.steps == nullptr) {
    return;
  }
  const double step = read_number(args.steps->dtype, args.steps->data[i]);
  line.lr = lr / (1 + (step - 1) * args.attrs.lr_decay);
  line.step_size = lr / (1 - std::pow(line.beta1, step));
  line.root2 = std::sqrt(1 - std::pow(line.beta2, step));
}

const StepFn* loops(const ListTable& table, std::uint32_t code) {
  switch (code) {
    case NPU_OPTIMIZER_SGD:
      return table.sgd;
    case NPU_OPTIMIZER_ADAGRAD:
      return table.adagrad;
    default:
      return table.adam;
  }
}

}  // namespace

npu_status optimizer_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_OPTIMIZER_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  for (int i = 0; i < 9; ++i) {
    out.dtypes[i] = kListDtypes;
  }
  return NPU_OK;
}

npu_status optimizer_run(const npu_call& call) {
  const npu_optimizer_args args = npu_optimizer_unpack(&call);
  if (npu_status status = check_roles(call, args)) {
    return status;
  }
  if (number(args.found_inf, 0) != 0) {
    return NPU_OK;
  }
  const StepLine shared = common(call, args);
  const StepFn step =
      loops(list_table(), call.code)[list_type(args.params->dtype)];
  return parallel_stretches(
      *args.params, [&](std::int64_t i, std::int64_t at, std::int64_t n) {
        StepLine line = shared;
        set_step(line, args, shared.lr, i);
        line.param = list_data(args.params, i, at);
        line.grad = list_data(args.grads, i, at);
        line.state1 = list_data(args.state1, i, at);
        line.state2 = list_data(args.state2, i, at);
        line.state3 = list_data(args.state3, i, at);
        step(line, n);
      });
}

}  // namespace npu::host
