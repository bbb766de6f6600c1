// SPDX-License-Identifier: Apache-2.0
// Bounds for results whose elements are not made one by one.
#pragma once

#include "judge/host_call.h"

namespace optools {

// A kernel computes in float32 which pixels a place lies between. Near the
// middle of the image a place is small and its digits are not: it is moved by
// a step of the image's size, both ways, as the next pixel may be another one.
std::vector<at::Tensor> of_grid(
    const HostCall& call, const std::vector<at::Tensor>& references);

// Fourier transforms and decompositions are stable as a whole: the error of an
// element goes with the largest of its transform or matrix.
std::vector<at::Tensor> of_whole(
    const HostCall& call, const std::vector<at::Tensor>& references);

}  // namespace optools
