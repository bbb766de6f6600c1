// SPDX-License-Identifier: Apache-2.0
// What happens at a call that leaves the driver: nothing, a warning, an error.
#pragma once

#include "aten/profile/policy.h"
#include "aten/twin/entry.h"

namespace npu::ladder {

using twin::Entry;

// The slow half of check_policy().
void check_policy_first(Entry& entry);

// Judges the operator at its first call, warns about it or throws. Later calls
// cost one load.
inline void check_policy(Entry& entry) {
  if (C10_UNLIKELY(!entry.policy_checked.load(std::memory_order_acquire))) {
    check_policy_first(entry);
  }
}

// Stores the policy and has every operator judged again.
void set_policy(profile::Policy policy);

}  // namespace npu::ladder
