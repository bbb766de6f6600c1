// SPDX-License-Identifier: Apache-2.0
// How far results move when their arguments do.
#include "judge/movement.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>

#include <algorithm>

#include "core/tool.h"
#include "core/values.h"

namespace optools {

bool is_number(const at::Tensor& t) {
  return unit_roundoff(t.scalar_type()) != 0;
}

at::Tensor fitting(const at::Tensor& found, const at::Tensor& reference) {
  if (!found.defined() || found.sizes() != reference.sizes()) {
    return {};
  }
  return found.is_complex() ? found.abs() : found;
}

namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

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
    if (!random_) {  // a zero keeps its sign, which a branch may hang on
      return t.sign().mul_(step_).add_(1).mul_(t);
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

}  // namespace

double step_of(const HostCall& call) {
  double step = kLeastMove;
  for (const auto& result : call.results) {
    if (unit_roundoff(result.dtype) != 0) {
      step = std::max(step, accumulator_roundoff(result.dtype));
    }
  }
  return step;
}

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

}  // namespace optools
