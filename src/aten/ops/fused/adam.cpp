// SPDX-License-Identifier: Apache-2.0
// npu_apply_adam_w.out as one step of PyTorch's fused AdamW, on kind optimizer.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "aten/ops/fused/fused.h"
#include "attempts/optim.h"

namespace npu::fused {
namespace {

// The step t with beta^t = power; 0 where there is none among whole numbers
// that float32 holds.
double step_of(double power, double beta) {
  if (!(beta > 0 && beta < 1 && power > 0 && power < 1)) {
    return 0;
  }
  const double t = std::round(std::log(power) / std::log(beta));
  const bool exact = t >= 1 && t < 16777216 &&
                     std::abs(std::pow(beta, t) - power) <= 1e-9 * power;
  return exact ? t : 0;
}

}  // namespace

npu_reason apply_adam_w(const Arguments& args, torch::jit::Stack& results) {
  const auto number = [&](const char* name) {
    return args[name].toScalar().toDouble();
  };
  const auto flag = [&](const char* name) {
    return args.has(name) && args[name].toBool();
  };
  // The operator multiplies the powers by beta once more.
  const double t =
      step_of(number("beta1_power") * number("beta1"), number("beta1"));
  const at::Tensor grad = args.tensor("grad");
  const at::Tensor most = args.maybe("max_grad_norm");
  const bool amsgrad = flag("amsgrad");
  bool fits =
      t > 0 && !(amsgrad && !most.defined()) && on_device(grad) &&
      t == step_of(number("beta2_power") * number("beta2"), number("beta2"));
  std::vector<at::Tensor> written;
  for (const char* const name : {"var", "m", "v"}) {
    written.push_back(args.tensor(name));
  }
  if (amsgrad && fits) {
    written.push_back(most);
  }
  for (const at::Tensor& x : written) {
    fits = fits && x.scalar_type() == at::kFloat && same_dtype(grad, x) &&
           on_device(x) && x.sizes() == grad.sizes() &&
           x.is_non_overlapping_and_dense() && x.strides() == grad.strides();
  }
  if (!fits) {
    return kLeaveToCpu;
  }
  const at::Tensor steps = at::full({}, t, grad.options());
  at::_fused_adamw_(
      {written[0]},
      {grad},
      {written[1]},
      {written[2]},
      amsgrad ? at::TensorList(&most, 1) : at::TensorList(),
      {steps},
      number("lr"),
      number("beta1"),
      number("beta2"),
      number("weight_decay"),
      number("epsilon"),
      amsgrad,
      flag("maximize"));
  torch::jit::push(results, written[0], written[1], written[2]);
  return NPU_REASON_NONE;
}

}  // namespace npu::fused
