// SPDX-License-Identifier: Apache-2.0
// Bounds for linear and cubic resampling of images.
#pragma once

#include "judge/host_call.h"

namespace optools {

// A kernel computes where a result lies between pixels in float32, so its
// weights are as far off as that place has digits: the bound is the largest
// pixel nearby, times the place.
std::vector<at::Tensor> of_resampled(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
