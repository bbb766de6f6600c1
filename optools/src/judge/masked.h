// SPDX-License-Identifier: Apache-2.0
// What a mask takes out, where it was infinite or NaN.
#pragma once

#include "judge/host_call.h"

namespace optools {

// Dropout's gradient is a product with its mask: NaN times 0 is NaN. A kernel
// that selects has 0 there, which is as right. Such elements of `got` become
// the reference's.
at::Tensor forgive_masked(
    const HostCall& call, const at::Tensor& got, const at::Tensor& reference);

}  // namespace optools
