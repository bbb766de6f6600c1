// SPDX-License-Identifier: Apache-2.0
// How large the terms of a result were before they cancelled.
#pragma once

#include "judge/host_call.h"

namespace optools {

// One per result of the call, float64 and at least |reference|; undefined
// where a result is no number. `references` are the results' float64 answers.
std::vector<at::Tensor> majorants(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
