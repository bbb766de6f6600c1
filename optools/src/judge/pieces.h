// SPDX-License-Identifier: Apache-2.0
// Large elementwise calls, judged piece by piece: what is computed on the way
// stays in the cache.
#pragma once

#include "judge/host_call.h"

namespace optools {

// Empty where the call is small or cannot be cut.
std::vector<HostCall> pieces_of(const HostCall& call);

// The judgement on the whole from those on its pieces, in order.
class PiecewiseJudgement {
 public:
  explicit PiecewiseJudgement(const HostCall& call);
  // False when a piece says something that is not about its values.
  bool add(CallJudgement&& piece);
  CallJudgement finish();

 private:
  const HostCall& call_;
  Judgement whole_;
  int64_t done_ = 0;
  // Got and expected of the first element beyond the range.
  std::pair<c10::complex<double>, c10::complex<double>> overflow_;
};

}  // namespace optools
