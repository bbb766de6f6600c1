// SPDX-License-Identifier: Apache-2.0
// Views: nothing is computed, but they have to lie where the CPU's do.
#pragma once

#include "judge/host_call.h"

namespace optools {

// Compares the geometry of a view with what PyTorch's own gives for arguments
// of the same geometry (call.inputs, on the meta device); complains in `call`.
// Returns why nothing could be compared, or null.
const char* check_view(
    HostCall& call,
    const std::vector<c10::IValue>& given,
    c10::ArrayRef<c10::IValue> outputs);

}  // namespace optools
