// SPDX-License-Identifier: Apache-2.0
// References written out in the kit: loops in double over a case's values, for
// kinds that no kernel of the host driver computes in float64.
#pragma once

#include <span>

#include "case.h"

namespace npu::kit {

struct Plain;
extern const std::span<const Plain> kPlainFused;

// The answer to a case: plain loops where the kind has them, else the oracle's.
Outcome answer(const Case& wide);

}  // namespace npu::kit
