// SPDX-License-Identifier: Apache-2.0
// How large the terms of a result were before they cancelled.
#pragma once

#include "judge/host_call.h"

namespace optools {

// One per result of the call; undefined where |reference| will do. Where it is
// smaller than that, that counts. `references` are the results' float64
// answers.
std::vector<at::Tensor> majorants(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
