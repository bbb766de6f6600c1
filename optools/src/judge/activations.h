// SPDX-License-Identifier: Apache-2.0
// Activation functions: their majorants, and their values at infinity.
#pragma once

#include "judge/host_call.h"

namespace optools {

// How large the terms of an activation, or of its derivative, were.
std::vector<at::Tensor> of_activation(
    const HostCall& call, const std::vector<at::Tensor>& references);

// At an infinite argument a formula gives NaN (infinity times 0) where the
// function has a limit: both are right. Such elements of `got` become the
// reference's.
at::Tensor forgive_limits(
    const HostCall& call, const at::Tensor& got, const at::Tensor& reference);

}  // namespace optools
