// SPDX-License-Identifier: Apache-2.0
// How large the terms of a result were before they cancelled: the operator on
// absolute values where it is a sum of products, a formula for the few that
// need one, else how far the result moves when its inputs do.
#include "judge/majorant.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <cmath>

#include "core/tool.h"
#include "core/values.h"
#include "judge/activations.h"

namespace optools {
namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

at::Tensor wide(const at::Tensor& t) {
  return t.to(
      c10::isComplexType(t.scalar_type()) ? ScalarType::ComplexDouble
                                          : ScalarType::Double);
}

bool is_number(const at::Tensor& t) {
  return unit_roundoff(t.scalar_type()) != 0;
}

// Undefined, which is |reference|, where the sizes say that it belongs to
// something else.
at::Tensor fitting(const at::Tensor& found, const at::Tensor& reference) {
  if (!found.defined() || found.sizes() != reference.sizes()) {
    return {};
  }
  return found.is_complex() ? found.abs() : found;
}

bool named(const c10::Argument& argument, const char* name) {
  return argument.name() == name;
}

c10::IValue positive_number(const c10::IValue& value) {
  if (value.isDouble()) {
    return std::fabs(value.toDouble());
  }
  return value.isInt() ? c10::IValue(std::abs(value.toInt())) : value;
}

// Of a list of them: one for each tensor of another list.
c10::IValue positive_numbers(
    const c10::IValue& value, const c10::Argument& argument) {
  const auto type = argument.type()->cast<c10::ListType>();
  if (!type || type->getElementType()->kind() != c10::TypeKind::NumberType) {
    return value;
  }
  c10::impl::GenericList list(type->getElementType());
  for (const c10::IValue& item : value.toListRef()) {
    list.push_back(positive_number(item));
  }
  return list;
}

// Absolute values everywhere; what is subtracted is added.
Values positive_arguments(const HostCall& call, ScalarType real) {
  Values inputs = widened(call, real);
  const auto& arguments = call.op->handle.schema().arguments();
  const bool subtracts = base_name(*call.op).find("sub") != std::string::npos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& value = inputs[i];
    if (arguments[i].type()->kind() == c10::TypeKind::NumberType) {
      value = positive_number(value);
    } else if (value.isList() && !holds_tensor(value)) {
      value = positive_numbers(value, arguments[i]);
    }
    if (named(arguments[i], "alpha") && value.isScalar() && subtracts) {
      value = c10::Scalar(-std::fabs(value.toScalar().toDouble()));
    }
    value = map_tensors(value, [](const at::Tensor& t) {
      return is_number(t)
                 ? (t.is_complex() ? t.abs().to(t.scalar_type()) : t.abs())
                 : t;
    });
  }
  return inputs;
}

std::vector<at::Tensor> of_products(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  std::vector<at::Tensor> found;
  for (const auto real : {ScalarType::Float, ScalarType::Double}) {
    found.clear();
    bool finite = true;
    const Values inputs = positive_arguments(call, real);
    const Values outputs = run_on_host(*call.op, inputs);
    for (size_t i = 0; i < references.size(); ++i) {
      at::Tensor m;
      if (references[i].defined() && is_number(references[i])) {
        m = corresponding(call.results[i], inputs, outputs);
        finite = finite && (!m.defined() || m.sum().isfinite().item().toBool());
        m = fitting(m, references[i]);
      }
      found.push_back(m);
    }
    if (finite) {
      break;  // in float32 it is half the work, and digits do not matter
    }
  }
  return found;
}

// ---- movement
// ----------------------------------------------------------------

// float64 arithmetic would swallow a smaller move.
constexpr double kLeastMove = 0x1p-40;

// Arguments that are moved one by one; those after them, together.
constexpr size_t kMostMoves = 5;

bool is_movable(const c10::IValue& value) {
  if (value.isDouble()) {
    // A kernel computes with the float nearest to it.
    const double number = value.toDouble();
    return static_cast<double>(static_cast<float>(number)) != number;
  }
  bool found = false;
  each_tensor(
      value, [&](const at::Tensor& t) { found = found || is_number(t); });
  return found;
}

// Moves upwards all together, so that the terms of a sum add up whatever their
// signs; or each up or down at random.
class Mover {
 public:
  Mover(double step, bool random) : step_(step), random_(random) {}

  at::Tensor operator()(const at::Tensor& t) {
    for (const auto& [before, after] : done_) {
      if (before.is_same(t)) {  // one tensor given twice moves once
        return after;
      }
    }
    done_.emplace_back(t, is_number(t) ? moved(t) : t);
    return done_.back().second;
  }

 private:
  at::Tensor moved(const at::Tensor& t) {
    if (t.is_complex()) {
      return t.mul(1 + step_);
    }
    if (!random_) {
      return t.add(t.abs(), step_);
    }
    at::Tensor signs = at::empty_like(t).uniform_(-1, 1, generator_);
    return t.mul(signs.sign_().mul_(step_).add_(1));
  }

  double step_;
  bool random_;
  at::Generator generator_ = at::make_generator<at::CPUGeneratorImpl>(17);
  std::vector<std::pair<at::Tensor, at::Tensor>> done_;
};

// The float64 arguments with those from `first` to before `last` moved.
Values moved_arguments(
    const HostCall& call,
    const std::vector<size_t>& movable,
    size_t first,
    size_t last,
    Mover& move,
    double step) {
  Values inputs = widened(call);
  for (size_t at = first; at < last; ++at) {
    auto& value = inputs[movable[at]];
    value = value.isDouble() ? c10::IValue(value.toDouble() * (1 + step))
                             : map_tensors(value, move);
  }
  return inputs;
}

double step_of(const HostCall& call) {
  double step = kLeastMove;
  for (const auto& result : call.results) {
    if (unit_roundoff(result.dtype) != 0) {
      step = std::max(step, accumulator_roundoff(result.dtype));
    }
  }
  return step;
}

// How far a run with moved arguments is from the references, in steps.
void add_moves(
    const HostCall& call,
    const Values& inputs,
    const std::vector<at::Tensor>& references,
    double step,
    std::vector<at::Tensor>& largest) {
  const Values outputs = run_on_host(*call.op, inputs);
  for (size_t i = 0; i < references.size(); ++i) {
    const at::Tensor moved = corresponding(call.results[i], inputs, outputs);
    if (!references[i].defined() || !is_number(references[i]) ||
        !moved.defined() || moved.sizes() != references[i].sizes()) {
      continue;
    }
    const at::Tensor way = moved.sub(references[i]).abs().div_(step);
    const at::Tensor clean = way.nan_to_num_(0.0, 0.0, 0.0);
    largest[i] = largest[i].defined() ? at::maximum(largest[i], clean) : clean;
  }
}

// The sum over arguments of what the results move when that one does.
std::vector<at::Tensor> by_movement(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  std::vector<size_t> movable;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (is_movable(call.inputs[i])) {
      movable.push_back(i);
    }
  }
  const double step = step_of(call);
  std::vector<at::Tensor> found(references.size());
  const size_t moves = std::min(movable.size(), kMostMoves);
  for (size_t at = 0; at < moves; ++at) {
    const size_t last = at + 1 == moves ? movable.size() : at + 1;
    std::vector<at::Tensor> largest(references.size());
    for (const bool random : {false, true}) {
      if (random && call.rule.pointwise) {
        continue;
      }
      Mover move(step, random);
      const Values inputs =
          moved_arguments(call, movable, at, last, move, step);
      add_moves(call, inputs, references, step, largest);
    }
    for (size_t i = 0; i < references.size(); ++i) {
      if (largest[i].defined()) {
        found[i] = found[i].defined() ? found[i].add(largest[i]) : largest[i];
      }
    }
  }
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].defined() && is_number(references[i])) {
      found[i] = fitting(found[i], references[i]);
    }
  }
  return found;
}

// ---- formulas
// ----------------------------------------------------------------

// The argument of that name in float64; undefined when absent.
at::Tensor argument(const HostCall& call, const char* name) {
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (named(arguments[i], name) && call.inputs[i].isTensor() &&
        call.inputs[i].toTensor().defined()) {
      return wide(call.inputs[i].toTensor());
    }
  }
  return {};
}

int64_t whole_number(const HostCall& call, const char* name) {
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (named(arguments[i], name) && call.inputs[i].isInt()) {
      return call.inputs[i].toInt();
    }
  }
  return 0;
}

// (|x| + mean |x|) / sigma, scaled; the mean's own terms; sigma as it moves.
std::vector<at::Tensor> of_layer_norm(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  std::vector<at::Tensor> found(references.size());
  const at::Tensor input = argument(call, "input");
  const at::Tensor weight = argument(call, "weight");
  const at::Tensor bias = argument(call, "bias");
  if (!input.defined() || references.size() != 3 || !references[1].defined() ||
      references[1].dim() != input.dim()) {
    return by_movement(call, references);
  }
  const at::Tensor x = input.abs();
  std::vector<int64_t> inner;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (references[1].size(d) == 1 && x.size(d) != 1) {
      inner.push_back(d);
    }
  }
  if (inner.empty()) {
    return by_movement(call, references);
  }
  const at::Tensor mean = x.mean(inner, true);
  at::Tensor m = x.add(mean).mul(references[2]);
  m = weight.defined() ? m.mul(weight.abs()) : m;
  m = bias.defined() ? m.add(bias.abs()) : m;
  found[0] = fitting(m, references[0]);
  found[1] = fitting(mean, references[1]);
  // 1 / sqrt(var + eps) moves by half of what the variance moves relatively,
  // and that by the terms of the mean.
  const at::Tensor spread = mean.mul(references[2]).square().add(1);
  found[2] = fitting(references[2].abs().mul(spread), references[2]);
  return found;
}

struct NormShape {
  at::Tensor x, grad, mean, rstd, weight;  // all of x's dims
  std::vector<int64_t> inner;              // a mean's elements lie along them
  std::vector<int64_t> outer;              // a weight's do along them
};

// Brings the three normalisations into one form; false where it cannot.
bool norm_shape(const HostCall& call, NormShape& shape) {
  shape.grad = argument(call, "grad_out");
  shape.x = argument(call, "input");
  shape.weight = argument(call, "weight");
  shape.mean = argument(call, "mean");
  shape.rstd = argument(call, "rstd");
  if (!shape.mean.defined()) {
    shape.mean = argument(call, "save_mean");
    shape.rstd = argument(call, "save_invstd");
  }
  if (!shape.x.defined() || !shape.grad.defined() || !shape.mean.defined() ||
      !shape.rstd.defined() || shape.x.dim() < 2) {
    return false;
  }
  const auto dims = shape.x.dim();
  if (shape.mean.dim() == dims) {  // layer norm
    for (int64_t d = 0; d < dims; ++d) {
      (shape.mean.size(d) == 1 ? shape.inner : shape.outer).push_back(d);
    }
    return !shape.inner.empty();
  }
  if (shape.mean.dim() != 1 || shape.mean.numel() != shape.x.size(1)) {
    return false;
  }
  std::vector<int64_t> channel(dims, 1);  // batch norm
  channel[1] = shape.x.size(1);
  for (int64_t d = 0; d < dims; ++d) {
    if (d != 1) {
      shape.inner.push_back(d);
    }
  }
  shape.outer = shape.inner;
  shape.mean = shape.mean.reshape(channel);
  shape.rstd = shape.rstd.reshape(channel);
  if (shape.weight.defined()) {
    shape.weight = shape.weight.reshape(channel);
  }
  return true;
}

// grad_input = rstd (g - mean g - xhat mean(g xhat)), with g = grad weight;
// grad_weight sums grad xhat, grad_bias sums grad.
std::vector<at::Tensor> of_norm_backward(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  NormShape s;
  if (!norm_shape(call, s)) {
    return by_movement(call, references);
  }
  const at::Tensor grad = s.grad.abs();
  // x - mean cancels: its terms count, not only what is left of them.
  const at::Tensor xhat = s.x.abs().add(s.mean.abs()).mul(s.rstd);
  const at::Tensor g = s.weight.defined() ? grad.mul(s.weight.abs()) : grad;
  const at::Tensor terms = grad.mul(xhat);
  const at::Tensor whole = g.add(g.mean(s.inner, true))
                               .add(xhat.mul(g.mul(xhat).mean(s.inner, true)))
                               .mul(s.rstd);
  std::vector<at::Tensor> found;
  for (size_t i = 0; i < references.size(); ++i) {
    at::Tensor m;
    const auto& reference = references[i];
    if (reference.defined()) {
      if (call.results[i].position == 0) {
        m = whole;
      } else {
        const at::Tensor& from = call.results[i].position == 1 ? terms : grad;
        m = s.outer.empty() ? from : from.sum(s.outer);
        m = m.reshape(reference.sizes());
      }
      m = fitting(m, reference);
    }
    found.push_back(m);
  }
  return found;
}

// y (|g| + sum |g| y), and |g| + exp(y) sum |g|.
std::vector<at::Tensor> of_softmax_backward(
    const HostCall& call,
    const std::vector<at::Tensor>& references,
    bool logarithm) {
  const at::Tensor given = argument(call, "grad_output");
  const at::Tensor y = argument(call, "output");
  const int64_t dim = whole_number(call, "dim");
  if (!given.defined() || !y.defined() || references.size() != 1) {
    return by_movement(call, references);
  }
  const at::Tensor grad = given.abs();
  const at::Tensor m =
      logarithm ? grad.add(y.exp().mul(grad.sum(dim, true)))
                : y.abs().mul(grad.add(grad.mul(y.abs()).sum(dim, true)));
  return {fitting(m, references[0])};
}

// A state is rounded to the dtype of the result before the next step reads it:
// that moves results as rounding the arguments so would.
std::vector<at::Tensor> of_states(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  auto found = by_movement(call, references);
  for (size_t i = 0; i < found.size(); ++i) {
    const auto dtype = call.results[i].dtype;
    if (found[i].defined()) {
      found[i] =
          found[i].mul(unit_roundoff(dtype) / accumulator_roundoff(dtype));
    }
  }
  return found;
}

// Between its arguments it is a sum of positive terms, beyond them it is not.
bool is_extrapolation(const HostCall& call) {
  if (base_name(*call.op) != "lerp") {
    return false;
  }
  for (const auto& value : call.inputs) {
    if (value.isScalar() && !value.isComplexDouble()) {
      const double weight = value.toScalar().toDouble();
      return !(weight >= 0 && weight <= 1);
    }
  }
  return true;  // a tensor of weights
}

}  // namespace

std::vector<at::Tensor> of_first_argument(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  at::Tensor x;
  for (const auto& value : call.inputs) {
    if (value.isTensor() && value.toTensor().defined()) {
      x = wide(value.toTensor()).abs();
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

std::vector<at::Tensor> majorants(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  switch (call.rule.rule) {
    case Rule::kProducts:
      return is_extrapolation(call) ? by_movement(call, references)
                                    : of_products(call, references);
    case Rule::kByInput:
      return of_activation(call, references);
    case Rule::kLayerNorm:
      return of_layer_norm(call, references);
    case Rule::kNormBackward:
      return of_norm_backward(call, references);
    case Rule::kSoftmaxBackward:
      return of_softmax_backward(call, references, false);
    case Rule::kLogSoftmaxBackward:
      return of_softmax_backward(call, references, true);
    case Rule::kRecurrent:
      return of_states(call, references);
    default:
      return by_movement(call, references);
  }
}

}  // namespace optools
