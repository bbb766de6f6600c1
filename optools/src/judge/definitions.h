// SPDX-License-Identifier: Apache-2.0
// Operators that are computed by their definition: PyTorch's CPU has no kernel
// of theirs, or none in float64.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

// Their results from float64 arguments; nothing for another operator, dtype or
// form. What only a backward kernel reads is left undefined.
std::optional<std::vector<c10::IValue>> defined_answer(
    const Operator& op, const std::vector<c10::IValue>& inputs);

}  // namespace optools
