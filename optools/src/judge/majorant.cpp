// SPDX-License-Identifier: Apache-2.0
// How large the terms of a result were before they cancelled: the operator on
// absolute values where it is a sum of products, a formula for the few that
// need one, else how far the result moves when its inputs do.
#include "judge/majorant.h"

#include <algorithm>
#include <cmath>

#include "core/tool.h"
#include "core/values.h"
#include "judge/activations.h"
#include "judge/movement.h"
#include "judge/resampled.h"
#include "judge/wholes.h"

namespace optools {
namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

at::Tensor wide(const at::Tensor& t) {
  return t.to(
      c10::isComplexType(t.scalar_type()) ? ScalarType::ComplexDouble
                                          : ScalarType::Double);
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
  if (!shape.mean.defined() && !shape.rstd.defined()) {  // rms norm
    shape.rstd = argument(call, "rstd");
    shape.mean = shape.rstd.defined() ? shape.rstd.mul(0.0) : at::Tensor();
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

// x - max - log(sum of exp): the sum is 1 or more, and rounded, however small
// its logarithm is.
std::vector<at::Tensor> of_log_softmax(
    const std::vector<at::Tensor>& references) {
  std::vector<at::Tensor> found;
  for (const auto& reference : references) {
    found.push_back(reference.defined() ? reference.abs().add_(1) : reference);
  }
  return found;
}

// start + i step: near zero it is what is left of the ends.
std::vector<at::Tensor> of_range(const std::vector<at::Tensor>& references) {
  std::vector<at::Tensor> found;
  for (const auto& reference : references) {
    found.push_back(
        reference.defined() && reference.numel() != 0
            ? reference.abs().max().expand(reference.sizes())
            : at::Tensor());
  }
  return found;
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
    case Rule::kRange:
      return of_range(references);
    case Rule::kLogSoftmax:
      return of_log_softmax(references);
    case Rule::kRecurrent:
      return of_states(call, references);
    case Rule::kResampled:
      return of_resampled(call, references);
    case Rule::kGrid:
      return of_grid(call, references);
    case Rule::kWhole:
      return of_whole(call, references);
    default:
      return by_movement(call, references);
  }
}

}  // namespace optools
