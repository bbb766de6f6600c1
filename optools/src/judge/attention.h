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

// From float64 arguments; nothing for a form that is not known. With dropout
// the reference is the middle of what any mask could give, and the majorant
// reaches to both ends.
std::optional<AttentionAnswer> attention_answer(
    const HostCall& call, const std::vector<c10::IValue>& inputs);

// What the CPU's own fused kernel gives for the backends' operators; nothing
// where it has none for the call.
std::optional<std::vector<c10::IValue>> attention_on_host(
    const Operator& op, const std::vector<c10::IValue>& inputs);

}  // namespace optools
