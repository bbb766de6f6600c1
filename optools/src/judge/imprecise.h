// SPDX-License-Identifier: Apache-2.0
// PyTorch's own CPU kernels that are less precise than the standard asks for.
#pragma once

#include "judge/host_call.h"

namespace optools {

// The E that PyTorch's CPU kernel was measured to come to, with the dtype of
// the result; 0 for one that keeps the standard.
double known_imprecision(const HostCall& call, c10::ScalarType dtype);

// The narrow dtype that it sums in, where it does: its error then grows with
// the terms, and E where they cancel. Undefined for any other.
c10::ScalarType narrow_sums(const HostCall& call, c10::ScalarType dtype);

}  // namespace optools
