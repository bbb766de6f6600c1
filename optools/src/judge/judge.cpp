// SPDX-License-Identifier: Apache-2.0
// The verdict on a call: the operator again on the CPU in float64, from the
// same inputs, and every result against that. Cheap answers first: most
// results pass with |ref| for a majorant.
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/tool.h"
#include "judge/activations.h"
#include "judge/attention.h"
#include "judge/facts.h"
#include "judge/host_call.h"
#include "judge/imprecise.h"
#include "judge/majorant.h"
#include "judge/masked.h"
#include "judge/pieces.h"
#include "judge/products.h"
#include "judge/selected.h"
#include "judge/shrink.h"

namespace optools {
namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

constexpr auto kNative = ScalarType::Undefined;

struct Reference {
  Values inputs;
  Values outputs;
  bool native = false;  // no wider than what is judged
  // Where they came with the answer: by result of the operator.
  Values majorants;
};

std::string first_line(const std::string& text) {
  const auto end = text.find('\n');
  return text.substr(0, std::min<size_t>(end, 160));
}

bool has_half(const HostCall& call) {
  bool found = false;
  for (const auto& value : call.inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      found = found ||
              (c10::isFloatingType(t.scalar_type()) && t.element_size() < 4);
    });
  }
  return found;
}

bool rounds(const HostCall& call) {
  return call.rule.rule != Rule::kExact && call.rule.rule != Rule::kSelected;
}

void answer(const HostCall& call, Reference& reference) {
  if (call.rule.rule == Rule::kAttention) {
    if (auto found = attention_answer(call, reference.inputs)) {
      reference.outputs = std::move(found->results);
      reference.majorants = std::move(found->majorants);
      return;
    }
  }
  reference.outputs = run_on_host(*call.op, reference.inputs);
}

// The operator in float64; where the CPU has no such kernel, in what it has.
// An empty string when there is a reference, else why there is none.
std::string run_reference(const HostCall& call, Reference& reference) {
  std::vector<ScalarType> tries;
  if (rounds(call)) {
    tries.push_back(ScalarType::Double);
    if (has_half(call)) {
      tries.push_back(ScalarType::Float);
    }
  }
  if (!rounds(call) || call.device != c10::DeviceType::CPU) {
    tries.push_back(kNative);  // of the cpu it would be the same kernel
  }
  std::string why;
  for (const auto real : tries) {
    try {
      reference.inputs = widened(call, real);
      answer(call, reference);
      reference.native = real == kNative;
      return {};
    } catch (const c10::Error& error) {
      why = why.empty() ? first_line(error.what_without_backtrace()) : why;
    } catch (const std::exception& error) {
      why = why.empty() ? first_line(error.what()) : why;
    }
  }
  return "no reference: " + why;
}

bool in_kind(const Judgement& j) {
  return j.tally.nan_differs != 0 || j.tally.inf_differs != 0;
}

bool by_rounding(const Judgement& j) {
  return (j.verdict == Verdict::kWarn || j.verdict == Verdict::kError) &&
         !in_kind(j) && unit_roundoff(j.dtype) != 0;
}

// Elements that are the CPU's own are right, whatever float64 says.
at::Tensor forgive_own(
    const at::Tensor& got, const at::Tensor& own, const at::Tensor& truth) {
  if (!own.defined() || own.sizes() != got.sizes() ||
      own.scalar_type() != got.scalar_type()) {
    return got;
  }
  const at::Tensor same =
      got.eq(own).logical_or(got.ne(got).logical_and(own.ne(own)));
  return at::where(same, truth.to(got.scalar_type()), got);
}

struct Judging {
  const HostCall& call;
  const Reference& reference;
  ToleranceOf tolerance;
  const void* context;
  OwnAnswer own;
  std::vector<at::Tensor> truths;
  std::vector<Judgement> found;
  std::vector<at::Tensor> bounds;  // empty: not asked for yet

  Tolerance limits(const HostResult& result) const {
    return tolerance(result.dtype, context);
  }
  std::vector<int64_t> doubtful_elements(size_t i) const {
    const auto& got = call.results[i].got;
    const auto terms = terms_of(call.rule, call.inputs, got.numel());
    return elements_over(got, truths[i], terms);
  }
  Judgement values(size_t i, const at::Tensor& got, const at::Tensor& m) const {
    const auto& result = call.results[i];
    const auto terms = terms_of(call.rule, call.inputs, got.numel());
    const bool fits = m.defined() && m.sizes() == truths[i].sizes();
    Judgement j = judge_values(
        got, truths[i], fits ? m : at::Tensor(), terms, limits(result));
    if (reference.native && unit_roundoff(result.dtype) != 0) {
      j.reason += j.reason.empty() ? "" : " (reference in the same dtype)";
    }
    return j;
  }
};

Judgement judge_first(Judging& judging, size_t i) {
  const auto& call = judging.call;
  const auto& result = call.results[i];
  const at::Tensor& truth = judging.truths[i];
  if ((result.output && result.position == call.op->bookkeeping) ||
      (!truth.defined() &&
       (call.rule.rule == Rule::kAttention || has_definition(*call.op)))) {
    return skipped("bookkeeping of the kernel");
  }
  if (!truth.defined()) {
    return wrong("a result where the CPU has none");
  }
  const std::string facts = wrong_facts(call, result, truth, judging.own);
  if (!facts.empty()) {
    return wrong(facts);
  }
  if (call.rule.rule == Rule::kSelected) {
    Judgement j = judge_equal(result.got, truth, judging.limits(result));
    if (j.verdict == Verdict::kError && valid_selection(call, result, truth)) {
      j = {};
      j.dtype = result.dtype;
      j.elements = result.got.numel();
    }
    return j;
  }
  if (!rounds(call)) {
    return judge_equal(result.got, truth, judging.limits(result));
  }
  const at::Tensor bound =
      judging.bounds.empty() ? at::Tensor() : judging.bounds[i];
  Judgement j = judging.values(i, result.got, bound);
  if (!in_kind(j)) {
    return j;
  }
  at::Tensor patched = forgive_limits(call, result.got, truth);
  patched = forgive_masked(call, patched, truth);
  if (call.device != c10::DeviceType::CPU) {
    patched = forgive_own(patched, judging.own.result(result), truth);
  }
  return patched.is_same(result.got) ? j : judging.values(i, patched, bound);
}

// Majorants, of elementwise calls only where they are needed.
std::vector<at::Tensor> needed_majorants(const Judging& judging) {
  const auto& call = judging.call;
  if (is_matrix_product(call)) {
    const at::Tensor found =
        product_majorant(call, judging.truths[0], judging.doubtful_elements(0));
    return found.defined() ? std::vector<at::Tensor>{found}
                           : majorants(call, judging.truths);
  }
  // One run on absolute values costs less than picking elements.
  if (call.rule.rule == Rule::kProducts || !call.rule.pointwise) {
    return majorants(call, judging.truths);
  }
  std::vector<at::Tensor> doubtful(call.results.size());
  for (size_t i = 0; i < doubtful.size(); ++i) {
    if (by_rounding(judging.found[i])) {
      if (call.results[i].got.is_complex()) {
        return majorants(call, judging.truths);
      }
      const auto elements = judging.doubtful_elements(i);
      doubtful[i] =
          at::empty({static_cast<int64_t>(elements.size())}, ScalarType::Long);
      std::copy(
          elements.begin(),
          elements.end(),
          doubtful[i].mutable_data_ptr<int64_t>());
    }
  }
  const auto small = shrunk(call, doubtful);
  if (!small) {
    return majorants(call, judging.truths);
  }
  std::vector<at::Tensor> truths;
  for (size_t i = 0; i < doubtful.size(); ++i) {
    truths.push_back(
        judging.truths[i].reshape(-1).index_select(0, small->elements[i]));
  }
  auto found = majorants(small->call, truths);
  for (size_t i = 0; i < doubtful.size(); ++i) {
    if (found[i].defined()) {
      const at::Tensor whole =
          at::zeros({judging.truths[i].numel()}, found[i].options());
      whole.index_copy_(0, small->elements[i], found[i]);
      found[i] = whole.reshape(judging.truths[i].sizes());
    }
  }
  return found;
}

// Majorants that are cheap, or nearly always needed, are there at once.
void prepare_majorants(Judging& judging) {
  const auto& call = judging.call;
  if (!judging.reference.majorants.empty()) {
    for (const auto& result : call.results) {
      judging.bounds.push_back(
          corresponding(result, {}, judging.reference.majorants));
    }
    return;
  }
  bool narrow = false;
  for (const auto& result : call.results) {
    narrow = narrow || unit_roundoff(result.dtype) > 0x1p-24;
  }
  const bool whole = std::all_of(
      judging.truths.begin(), judging.truths.end(), [](const auto& t) {
        return t.defined();
      });
  if (whole && (call.rule.rule == Rule::kByInput ||
                (call.rule.rule == Rule::kProducts && !narrow &&
                 !call.rule.pointwise && !is_matrix_product(call)))) {
    judging.bounds = majorants(call, judging.truths);
  }
}

std::string short_e(double e) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", e);
  return text;
}

// A result no further from float64 than PyTorch's own CPU kernel is in the same
// call is no error. Of a kernel that is a quarter off no excuse is made.
constexpr double kAsOwn = 2;
constexpr double kQuarter = 0.125;  // in units of the allowance, 2 u |ref|

// Over all elements together: another order of sums moves single elements by
// more than that, a wrong kernel moves them all.
bool errs_as_much(const Judgement& mine, const Judgement& own) {
  return !in_kind(own) && mine.tally.diff2 <= kAsOwn * kAsOwn * own.tally.diff2;
}

// Within the standard of a narrow accumulator, where PyTorch's CPU has no
// better one?
bool within_narrow_sums(
    const Judging& judging, size_t i, ScalarType accumulator) {
  const auto& result = judging.call.results[i];
  if (judging.bounds.empty() || !judging.bounds[i].defined() ||
      accumulator == ScalarType::Undefined) {
    return false;
  }
  // Of the smallest numbers a rounding has a size of its own, and terms add up.
  const double terms = static_cast<double>(
      terms_of(judging.call.rule, judging.call.inputs, result.got.numel()));
  const at::Tensor wider =
      judging.bounds[i]
          .mul(unit_roundoff(accumulator))
          .add_(smallest_number(accumulator) * std::sqrt(terms) / 4)
          .div_(accumulator_roundoff(result.dtype));
  return judging.values(i, result.got, wider).verdict <= Verdict::kWarn;
}

void weigh_own(Judging& judging, size_t i) {
  auto& found = judging.found[i];
  const auto& call = judging.call;
  const auto& result = call.results[i];
  if (!by_rounding(found) || found.verdict != Verdict::kError) {
    return;
  }
  // On the cpu itself the kernel is PyTorch's own: what was measured of it.
  double own = known_imprecision(call, result.dtype);
  double limit = kAsOwn * own;
  if (call.device != c10::DeviceType::CPU) {
    const at::Tensor theirs = judging.own.result(result);
    if (!theirs.defined() || theirs.sizes() != result.got.sizes() ||
        theirs.scalar_type() != result.dtype) {
      return;
    }
    const at::Tensor bound =
        judging.bounds.empty() ? at::Tensor() : judging.bounds[i];
    const Judgement other = judging.values(i, theirs, bound);
    if (!errs_as_much(found, other)) {
      return;
    }
    // The worst element depends on the order, so of that the worst known
    // counts.
    limit = std::min(
        std::max(own, kAsOwn * other.tally.e),
        kQuarter / unit_roundoff(result.dtype));
    own = other.tally.e;
  }
  const auto sums = narrow_sums(call, result.dtype);
  if (within_narrow_sums(judging, i, sums)) {
    found.verdict = Verdict::kWarn;
    found.reason += "; its sums are as PyTorch's own CPU kernel has them, in ";
    found.reason +=
        sums == result.dtype ? "the dtype of the result" : c10::toString(sums);
  } else if (own > kPassE && found.tally.e <= limit) {
    found.verdict = Verdict::kWarn;
    found.reason +=
        "; PyTorch's own CPU kernel is no closer (E " + short_e(own) + ")";
  }
}

// Of a product that passed, what it is really off: with |ref| for a majorant
// that cannot be seen.
void tell_real_error(Judging& judging) {
  constexpr double kWorthIt = 0.125;
  auto& found = judging.found[0];
  const auto& got = judging.call.results[0].got;
  if (found.verdict != Verdict::kPass || found.tally.e < kWorthIt ||
      judging.truths[0].is_complex()) {
    return;
  }
  const auto terms =
      terms_of(judging.call.rule, judging.call.inputs, got.numel());
  if (const auto worst = worst_by_majorant(
          judging.call, got, judging.truths[0], terms, found.tally.e / 4)) {
    set_worst(found, got, judging.truths[0], worst->at, worst->e);
  }
}

// Results that did not pass with |ref| for a majorant, with the real one.
void judge_again(Judging& judging) {
  auto& call = judging.call;
  auto& bounds = judging.bounds;
  bool again = false;
  for (size_t i = 0; i < judging.found.size(); ++i) {
    if (!by_rounding(judging.found[i])) {
      continue;
    }
    const auto& got = call.results[i].got;
    if (bounds.empty()) {
      bounds = needed_majorants(judging);
      again = true;
    }
    if (again) {
      judging.found[i] = judging.values(i, got, bounds[i]);
    }
    if (!by_rounding(judging.found[i]) || call.device == c10::DeviceType::CPU) {
      continue;
    }
    const at::Tensor patched = forgive_own(
        got, judging.own.result(call.results[i]), judging.truths[i]);
    Judgement other = judging.values(i, patched, bounds[i]);
    if (other.verdict < judging.found[i].verdict) {
      judging.found[i] = std::move(other);
    }
  }
  for (size_t i = 0; i < judging.found.size(); ++i) {
    weigh_own(judging, i);
  }
  if (is_matrix_product(call)) {
    tell_real_error(judging);
  }
}

}  // namespace

void conclude(CallJudgement& all) {
  for (size_t i = 0; i < all.each.size(); ++i) {
    const auto& j = all.each[i].second;
    const auto& worst = all.each[all.worst].second;
    if (i == 0 || j.verdict > worst.verdict ||
        (j.verdict == worst.verdict && j.tally.e > worst.tally.e)) {
      all.worst = i;
    }
  }
  if (!all.each.empty()) {
    all.verdict = all.each[all.worst].second.verdict;
    all.reason = all.each[all.worst].second.reason;
  }
}

CallJudgement skip_call(std::string reason) {
  CallJudgement all;
  all.verdict = Verdict::kSkip;
  all.reason = std::move(reason);
  return all;
}

namespace {

CallJudgement judge_whole(
    const HostCall& call, ToleranceOf tolerance, const void* context) {
  CallJudgement all;
  for (const auto& complaint : call.complaints) {
    all.each.emplace_back("call", wrong(complaint));
  }
  if (call.results.empty() || call.op->is_view) {
    conclude(all);
    return all;
  }
  Reference reference;
  const std::string why = run_reference(call, reference);
  if (!why.empty()) {
    if (all.each.empty()) {
      return skip_call(why);
    }
    conclude(all);
    return all;
  }
  Judging judging{
      call, reference, tolerance, context, OwnAnswer(call), {}, {}, {}};
  for (const auto& result : call.results) {
    judging.truths.push_back(
        corresponding(result, reference.inputs, reference.outputs));
  }
  if (rounds(call)) {
    prepare_majorants(judging);
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    judging.found.push_back(judge_first(judging, i));
  }
  if (rounds(call)) {
    judge_again(judging);
  }
  for (const auto& [position, item] : call.changed) {
    if (!judging.own.changes(position, item)) {
      all.each.emplace_back(
          "call",
          wrong(
              "writes to argument " +
              call.op->handle.schema().arguments()[position].name() +
              ", which it only reads"));
    }
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    all.each.emplace_back(
        result_name(call, call.results[i]), std::move(judging.found[i]));
  }
  conclude(all);
  return all;
}

}  // namespace

CallJudgement judge_call(
    const HostCall& call, ToleranceOf tolerance, const void* context) {
  const auto pieces = pieces_of(call);
  if (!pieces.empty()) {
    PiecewiseJudgement all(call);
    for (const auto& piece : pieces) {
      if (!all.add(judge_whole(piece, tolerance, context))) {
        return judge_whole(call, tolerance, context);
      }
    }
    return all.finish();
  }
  return judge_whole(call, tolerance, context);
}

}  // namespace optools
