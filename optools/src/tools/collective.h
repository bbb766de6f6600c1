// SPDX-License-Identifier: Apache-2.0
// Collectives: operators that return before their results are there.
#pragma once

#include "core/tool.h"

namespace optools {

// The work a collective has begun; empty for any other operator.
class CollectiveWork {
 public:
  CollectiveWork() = default;
  // Of a call that has run.
  explicit CollectiveWork(const Call& call);

  bool defined() const {
    return !work_.isNone();
  }
  bool completed() const;
  // Waits; false when the collective failed (its caller gets the error).
  bool wait() const;

 private:
  c10::IValue work_;
};

// Will the caller wait at once? Then so may we.
bool waits_at_once(const Call& call, c10::ArrayRef<c10::IValue> inputs);

}  // namespace optools
