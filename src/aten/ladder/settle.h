// SPDX-License-Identifier: Apache-2.0
// What happens at a call that leaves the driver: nothing, a warning, an error.
#pragma once

#include "aten/ladder/entry.h"
#include "aten/profile/policy.h"

namespace npu::ladder {

// The slow half of settle().
void settle_first(Entry& entry);

// Judges the operator at its first call, warns about it or throws. Later calls
// cost one load.
inline void settle(Entry& entry) {
  if (C10_UNLIKELY(!entry.settled.load(std::memory_order_acquire))) {
    settle_first(entry);
  }
}

// Stores the policy and has every operator judged again.
void set_policy(profile::Policy policy);

}  // namespace npu::ladder
