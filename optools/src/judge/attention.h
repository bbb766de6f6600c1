// SPDX-License-Identifier: Apache-2.0
// Attention by its definition: a reference where the CPU has no kernel of that
// name, and the majorants of a product of products.
#pragma once

#include <optional>

#include "judge/host_call.h"

namespace optools {

struct AttentionAnswer {
  std::vector<c10::IValue> results;  // the operator's leading ones
  std::vector<c10::IValue> majorants;
};

// From float64 arguments; nothing for a form that is not known (grouped
// heads).
std::optional<AttentionAnswer> attention_answer(
    const HostCall& call, const std::vector<c10::IValue>& inputs);

}  // namespace optools
