// SPDX-License-Identifier: Apache-2.0
// Indices of selected values: any of several equal ones may be chosen.
#pragma once

#include "judge/host_call.h"

namespace optools {

// Do the indices that came out select the same values as the reference's, each
// of them at most once where an element can be selected once only?
bool valid_selection(
    const HostCall& call,
    const HostResult& result,
    const at::Tensor& reference);

}  // namespace optools
