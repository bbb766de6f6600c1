// SPDX-License-Identifier: Apache-2.0
// Activation functions.
#include "judge/activations.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "core/tool.h"
#include "judge/movement.h"

namespace optools {
namespace {

using c10::ScalarType;

// A sigmoid below it may be 0: exp of the negative argument overflowed.
constexpr double kLeastSigmoid = 0x1p-126;

at::Tensor wide_tensor(const HostCall& call, const char* name) {
  const auto* value = argument_named(call, name);
  return value != nullptr && value->isTensor() && value->toTensor().defined() &&
                 !value->toTensor().is_complex()
             ? value->toTensor().to(ScalarType::Double)
             : at::Tensor();
}

double number_named(const HostCall& call, const char* name, double otherwise) {
  const auto* value = argument_named(call, name);
  return value != nullptr && value->isScalar() && !value->isComplexDouble()
             ? value->toScalar().toDouble()
             : otherwise;
}

// exp(x) of a negative x has the relative error of its rounded argument.
at::Tensor tail(const at::Tensor& x) {
  return x.clamp_max(0.0).abs_().add_(1);
}

// The gradient that comes in, or 1 of a forward function.
at::Tensor incoming(const HostCall& call, const at::Tensor& x) {
  const at::Tensor grad = wide_tensor(call, "grad_output");
  return grad.defined() ? grad.abs() : at::ones_like(x);
}

// Functions that are a product with a sigmoid, or its logarithm: their tail is
// small and has all its digits. Undefined for those that cancel there.
at::Tensor sigmoid_like(
    const std::string& name,
    const HostCall& call,
    const at::Tensor& x,
    const at::Tensor& reference) {
  const at::Tensor g = incoming(call, x);
  const at::Tensor size = x.abs();
  const at::Tensor floor = g.mul(size.add(1)).mul_(kLeastSigmoid);
  const at::Tensor ref = reference.abs();
  if (name == "silu" || name == "mish") {
    return ref.mul(tail(x)).add_(floor);
  }
  if (name == "softplus" || name == "softplus_backward") {
    const double beta = number_named(call, "beta", 1);
    return ref.mul(x.mul(beta).abs_().add_(1)).add_(floor);
  }
  if (name == "log_sigmoid_forward" || name == "log_sigmoid_backward") {
    return ref.mul(size.add(1)).add_(floor);
  }
  const at::Tensor share = x.sigmoid();
  if (name == "silu_backward") {
    return size.add(1).mul_(share).mul_(tail(x)).mul_(g).add_(floor);
  }
  if (name == "mish_backward") {
    const at::Tensor soft = x.clamp_max(40.0).exp().log1p().tanh();
    return size.mul(share).add_(soft).mul_(tail(x)).mul_(g).add_(floor);
  }
  return {};
}

// M is the first argument, of functions that cancel inside; how far they move
// where that has other sizes.
std::vector<at::Tensor> of_first_argument(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  at::Tensor x;
  for (const auto& value : call.inputs) {
    if (value.isTensor() && value.toTensor().defined()) {
      x = value.toTensor().abs().to(ScalarType::Double);
      break;
    }
  }
  std::vector<at::Tensor> found;
  for (const auto& reference : references) {
    if (!reference.defined() || !is_number(reference)) {
      found.emplace_back();
    } else if (x.defined() && x.sizes() == reference.sizes()) {
      found.push_back(fitting(x, reference));
    } else {
      return by_movement(call, references);
    }
  }
  return found;
}

bool has_limits(const HostCall& call) {
  return call.rule.rule == Rule::kByInput || base_name(*call.op) == "sinc";
}

}  // namespace

std::vector<at::Tensor> of_activation(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  const at::Tensor x = wide_tensor(call, "self");
  const std::string name = base_name(*call.op);
  std::vector<at::Tensor> found(references.size());
  bool known = x.defined();
  for (size_t i = 0; i < references.size() && known; ++i) {
    if (!references[i].defined() || references[i].numel() == 0) {
      continue;
    }
    known = references[i].sizes() == x.sizes();
    if (known) {
      found[i] = sigmoid_like(name, call, x, references[i]);
      known = found[i].defined();
    }
  }
  return known ? found : of_first_argument(call, references);
}

at::Tensor forgive_limits(
    const HostCall& call, const at::Tensor& got, const at::Tensor& reference) {
  const at::Tensor x = wide_tensor(call, "self");
  if (!has_limits(call) || !x.defined() || x.sizes() != got.sizes() ||
      reference.sizes() != got.sizes()) {
    return got;
  }
  const at::Tensor infinite = x.isinf();
  if (!infinite.any().item().toBool()) {
    return got;
  }
  constexpr double kFar = 1e300;
  auto inputs = widened(call);
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (arguments[i].name() == "self") {
      inputs[i] = at::where(infinite, x.sign().mul_(kFar), x);
    }
  }
  const auto outputs = run_on_host(*call.op, inputs);
  if (outputs.empty() || !outputs[0].isTensor() ||
      outputs[0].toTensor().sizes() != got.sizes()) {
    return got;
  }
  at::Tensor limit = outputs[0].toTensor();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  limit = at::where(
      limit.abs().gt(kFar / 10),
      limit.sign().mul_(kInfinity),
      at::where(limit.abs().lt(10 / kFar), limit.mul(0.0), limit));
  const at::Tensor right =
      got.to(ScalarType::Double).eq(limit).logical_or_(got.isnan());
  return at::where(
      infinite.logical_and(right), reference.to(got.scalar_type()), got);
}

}  // namespace optools
