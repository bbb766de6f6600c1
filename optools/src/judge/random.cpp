// SPDX-License-Identifier: Apache-2.0
// Random operators: two samples of one distribution, ours and the CPU's. The
// CPU draws from a generator of its own; the user's is not touched.
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "core/tool.h"
#include "judge/host_call.h"
#include "judge/independence.h"

namespace optools {
namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

constexpr size_t kSample = 1 << 16;
// Kolmogorov and Smirnov: a false alarm once in a thousand million samples.
constexpr double kApart = 3.28;

std::vector<double> sample(const at::Tensor& t) {
  const at::Tensor real = t.is_complex() ? t.abs() : t;
  const at::Tensor values = real.to(ScalarType::Double).contiguous();
  const auto* data = values.const_data_ptr<double>();
  const auto count = static_cast<size_t>(values.numel());
  const size_t step = count / kSample + 1;
  std::vector<double> found;
  for (size_t i = 0; i < count; i += step) {
    found.push_back(data[i]);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The largest difference between two cumulative distributions.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const double x = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= x) {
      ++i;
    }
    while (j < b.size() && b[j] <= x) {
      ++j;
    }
    const double apart =
        static_cast<double>(i) / a.size() - static_cast<double>(j) / b.size();
    worst = std::max(worst, std::fabs(apart));
  }
  return worst;
}

Judgement judge_samples(const at::Tensor& got, const at::Tensor& theirs) {
  const auto a = sample(got);
  const auto b = sample(theirs);
  Judgement j;
  j.dtype = got.scalar_type();
  j.elements = got.numel();
  if (a.empty() || b.empty()) {
    return j;
  }
  const double n = static_cast<double>(a.size());
  const double m = static_cast<double>(b.size());
  const double allowed = kApart * std::sqrt((n + m) / (n * m));
  const double apart = distance(a, b);
  j.tally.e = apart / allowed;
  if (std::isnan(a.back()) || apart > allowed) {
    j.verdict = Verdict::kError;
    j.reason = "another distribution than the CPU's (Kolmogorov-Smirnov " +
               std::to_string(apart) + ", allowed " + std::to_string(allowed) +
               ")";
  }
  return j;
}

at::Generator own_generator() {
  return at::make_generator<at::CPUGeneratorImpl>(20240607);
}

// The operator with a generator of ours: its own argument, or the overload
// that has one. Nothing where there is neither.
bool run_with_generator(const HostCall& call, Values& inputs, Values& outputs) {
  const auto& arguments = call.op->handle.schema().arguments();
  inputs = widened(call, ScalarType::Undefined);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "generator") {
      inputs[i] = own_generator();
      outputs = run_on_host(*call.op, inputs);
      return true;
    }
  }
  const auto& id = call.op->id;
  const auto overload =
      id.overload_name.empty() ? "generator" : id.overload_name + "_generator";
  const auto other =
      c10::Dispatcher::singleton().findSchema({id.name, overload});
  if (!other) {
    return false;
  }
  torch::jit::Stack stack;
  for (const auto& wanted : other->schema().arguments()) {
    const auto at =
        std::find_if(arguments.begin(), arguments.end(), [&](const auto& mine) {
          return mine.name() == wanted.name();
        });
    if (wanted.name() == "generator") {
      stack.emplace_back(own_generator());
    } else if (at != arguments.end()) {
      stack.push_back(inputs[at - arguments.begin()]);
    } else {
      return false;
    }
  }
  other->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  outputs = {stack.begin(), stack.end()};
  return true;
}

// Are its elements equally distributed? Parameters that are tensors may make
// them not so.
bool is_one_distribution(const HostCall& call) {
  const std::string name = base_name(*call.op);
  constexpr const char* kNames[] = {
      "uniform",
      "normal",
      "bernoulli",
      "random",
      "exponential",
      "geometric",
      "cauchy",
      "log_normal",
      "rand",
      "randn",
      "randint",
      "rand_like",
      "randn_like",
      "randint_like",
      "randperm"};
  if (std::find(std::begin(kNames), std::end(kNames), name) ==
      std::end(kNames)) {
    return false;
  }
  const auto& arguments = call.op->handle.schema().arguments();
  bool one = name != "bernoulli";  // where `self` is the probability
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& each = arguments[i].name();
    if (name == "bernoulli" && each == "p") {
      one = call.inputs[i].isDouble();
    } else if (call.inputs[i].isTensor() && each != "self" && each != "out") {
      return false;
    }
  }
  return one;
}

Judgement judge_independence(
    Judgement found, const at::Tensor& got, const at::Tensor& theirs) {
  if (found.verdict != Verdict::kPass) {
    return found;
  }
  const std::string why = dependence(got, theirs);
  return why.empty() ? found : wrong("not independent: " + why);
}

// What was kept is scaled; how much was kept follows the probability.
CallJudgement judge_dropout(const HostCall& call) {
  const at::Tensor x = call.inputs[0].toTensor();
  const double p = call.inputs[1].toDouble();
  const at::Tensor mask = call.results[1].got.to(ScalarType::Double);
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  const auto dtype = call.results[0].dtype;
  CallJudgement all;
  all.each.emplace_back(
      "output[0]",
      judge_values(
          call.results[0].got,
          x.to(ScalarType::Double).mul(mask).mul(scale),
          {},
          1,
          default_tolerance(dtype)));
  const double n = static_cast<double>(std::max<int64_t>(x.numel(), 1));
  const double kept = mask.mean().item().toDouble();
  const double allowed = 6 * std::sqrt(p * (1 - p) / n) + 1 / n;
  Judgement share;
  share.elements = x.numel();
  share.tally.e = std::fabs(kept - (1 - p)) / allowed;
  if (x.numel() != 0 && share.tally.e > 1) {
    share = wrong(
        "keeps " + std::to_string(kept) + " of the elements, not " +
        std::to_string(1 - p));
  }
  all.each.emplace_back("output[1]", judge_independence(share, mask, {}));
  conclude(all);
  return all;
}

Tolerance usual(ScalarType dtype, const void*) {
  return default_tolerance(dtype);
}

bool is_permutation(const at::Tensor& t) {
  const at::Tensor sorted =
      std::get<0>(t.to(ScalarType::Long).sort()).contiguous();
  const auto* data = sorted.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < sorted.numel(); ++i) {
    if (data[i] != i) {
      return false;
    }
  }
  return true;
}

}  // namespace

CallJudgement judge_random(const HostCall& call) {
  if (call.rule.rule == Rule::kAttention) {
    return judge_call(call, &usual, nullptr);  // whatever the mask was
  }
  const std::string name = base_name(*call.op);
  if (name == "native_dropout" && call.results.size() == 2) {
    return judge_dropout(call);
  }
  Values inputs, outputs;
  if (!run_with_generator(call, inputs, outputs)) {
    return skip_call("draws random numbers, and takes no generator");
  }
  CallJudgement all;
  for (const auto& complaint : call.complaints) {
    all.each.emplace_back("call", wrong(complaint));
  }
  for (const auto& result : call.results) {
    const at::Tensor theirs = corresponding(result, inputs, outputs);
    Judgement j;
    if (!theirs.defined() || theirs.sizes() != result.got.sizes()) {
      j = wrong("another shape than the CPU's");
    } else if (theirs.scalar_type() != result.dtype) {
      j = wrong(
          std::string("dtype ") + c10::toString(result.dtype) + " instead of " +
          c10::toString(theirs.scalar_type()));
    } else if (name == "randperm" && !is_permutation(result.got)) {
      j = wrong("no permutation");
    } else {
      j = judge_samples(result.got, theirs);
      if (is_one_distribution(call)) {
        j = judge_independence(std::move(j), result.got, theirs);
      }
    }
    all.each.emplace_back(result_name(call, result), std::move(j));
  }
  conclude(all);
  return all;
}

}  // namespace optools
