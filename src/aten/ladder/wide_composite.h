// SPDX-License-Identifier: Apache-2.0
// Composites of ops/wide.yaml, with casts around them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace npu::ladder {

// `by`: what the dispatcher says of who registered them.
void register_wide_composites(
    std::vector<c10::RegistrationHandleRAII>& made, const char* by);

}  // namespace npu::ladder
