// SPDX-License-Identifier: Apache-2.0
// Taps that do not box a call that no tool wants.
#pragma once

#include "core/operators.h"

namespace optools {

// A boxed tap costs what boxing costs, some 1,500 instructions, also where all
// it does is pass the call on: half of the calls of a training step come from
// inside kernels the tools have taken. For the operators kernels call most, the
// tap gets a second entrance with their own types.
void give_type(c10::KernelFunction& tap, const Operator& op, int slot);

}  // namespace optools
