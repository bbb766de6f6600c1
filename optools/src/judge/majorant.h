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

// M is the first argument, of functions that cancel inside; how far they move
// where that has other sizes.
std::vector<at::Tensor> of_first_argument(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
