// SPDX-License-Identifier: Apache-2.0
// Attention by its definition: a reference where the CPU has no kernel of that
// name, and the majorants of a product of products.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

// The operator's leading results from float64 arguments, or their majorants;
// nothing for a form that is not known (grouped heads).
std::optional<std::vector<c10::IValue>> attention_answer(
    const HostCall& call,
    const std::vector<c10::IValue>& inputs,
    bool majorant);

}  // namespace optools
