// SPDX-License-Identifier: Apache-2.0
// Which part of a training step a thread is in, and what autograd is at.
#pragma once

#include <utility>

#include "core/tool.h"

namespace optools {

// Follows Optimizer.step on every thread, and counts steps; costs operators
// nothing. Idempotent.
void watch_optimizers(bool on);

// Fills phase and sequence of a call. In backward, also the origin its forward
// had, where that is known.
void place_call(Call& call, bool needs_origin);

// Forward calls of this thread whose graph is alive and that no backward came
// for; the second number changes when one does.
std::pair<uint64_t, uint64_t> calls_without_backward();

// After the kernel: remembers a forward call's origin for its backward.
void remember_origin(const Call& call);

}  // namespace optools
