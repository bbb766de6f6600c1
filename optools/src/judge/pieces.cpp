// SPDX-License-Identifier: Apache-2.0
// Large elementwise calls, judged piece by piece.
#include "judge/pieces.h"

#include <algorithm>
#include <tuple>

#include "core/tool.h"
#include "core/values.h"

namespace optools {
namespace {

constexpr int64_t kPiece = 1 << 15;

bool is_number_argument(const at::Tensor& t) {
  return t.dim() == 0;
}

bool can_be_cut(const HostCall& call) {
  const auto rule = call.rule.rule;
  if (!call.rule.pointwise || call.results.size() != 1 ||
      (rule != Rule::kRounded && rule != Rule::kByInput &&
       rule != Rule::kProducts) ||
      !call.complaints.empty() || !call.changed.empty()) {
    return false;
  }
  const auto& result = call.results[0];
  if (result.got.numel() < 2 * kPiece || result.shares >= 0 ||
      !result.got.is_contiguous() ||
      result.strides != result.got.strides().vec()) {
    return false;
  }
  for (const auto& value : call.inputs) {
    bool fits = !value.isTensorList() && !value.isOptionalTensorList();
    each_tensor(value, [&](const at::Tensor& t) {
      fits = fits && (is_number_argument(t) ||
                      (t.is_contiguous() && t.sizes() == result.got.sizes()));
    });
    if (!fits) {
      return false;
    }
  }
  return call.true_strides;
}

}  // namespace

std::vector<HostCall> pieces_of(const HostCall& call) {
  std::vector<HostCall> pieces;
  if (!can_be_cut(call)) {
    return pieces;
  }
  const int64_t count = call.results[0].got.numel();
  for (int64_t first = 0; first < count; first += kPiece) {
    const int64_t size = std::min(kPiece, count - first);
    const auto cut = [&](const at::Tensor& t) {
      return is_number_argument(t) ? t : t.reshape(-1).narrow(0, first, size);
    };
    HostCall piece = call;
    for (auto& value : piece.inputs) {
      value = map_tensors(value, cut);
    }
    auto& result = piece.results[0];
    result.got = cut(result.got);
    result.strides = {1};
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

PiecewiseJudgement::PiecewiseJudgement(const HostCall& call) : call_(call) {}

bool PiecewiseJudgement::add(CallJudgement&& piece) {
  if (piece.each.size() != 1 || piece.verdict == Verdict::kSkip) {
    return false;
  }
  const Judgement& part = piece.each[0].second;
  if (part.elements == 0) {
    return false;  // its shape or dtype is wrong
  }
  const Tally& from = part.tally;
  Tally& to = whole_.tally;
  if (from.worst >= 0 && (to.worst < 0 || from.e > to.e)) {
    to.worst = done_ + from.worst;
    whole_.got = part.got;
    whole_.expected = part.expected;
  }
  to.e = std::max(to.e, from.e);
  to.over += from.over;
  to.not_close += from.not_close;
  to.nan_differs += from.nan_differs;
  to.inf_differs += from.inf_differs;
  if (from.overflowed != 0 && to.overflowed == 0) {
    to.overflow_at = done_ + from.overflow_at;
    overflow_ = {part.got, part.expected};
  }
  to.overflowed += from.overflowed;
  to.finite += from.finite;
  to.max_abs = std::max(to.max_abs, from.max_abs);
  to.max_rel = std::max(to.max_rel, from.max_rel);
  to.sum_abs += from.sum_abs;
  to.dot += from.dot;
  to.got2 += from.got2;
  to.ref2 += from.ref2;
  to.diff2 += from.diff2;
  whole_.dtype = part.dtype;
  whole_.tolerance = part.tolerance;
  done_ += part.elements;
  return true;
}

CallJudgement PiecewiseJudgement::finish() {
  whole_.elements = done_;
  if (unit_roundoff(whole_.dtype) != 0) {
    decide(whole_);
  } else if (whole_.tally.over != 0) {
    whole_.verdict = Verdict::kError;
    whole_.reason = std::to_string(whole_.tally.over) + " of " +
                    std::to_string(done_) + " differ, and have to be equal";
  }
  int64_t rest = whole_.tally.worst;
  if (whole_.verdict == Verdict::kOverflow) {
    rest = whole_.tally.overflow_at;
    std::tie(whole_.got, whole_.expected) = overflow_;
  }
  if (rest >= 0) {
    const auto sizes = call_.results[0].got.sizes();
    whole_.worst.resize(sizes.size());
    for (size_t d = sizes.size(); d-- > 0;) {
      whole_.worst[d] = rest % sizes[d];
      rest /= sizes[d];
    }
  }
  CallJudgement all;
  all.each.emplace_back(
      result_name(call_, call_.results[0]), std::move(whole_));
  conclude(all);
  return all;
}

}  // namespace optools
