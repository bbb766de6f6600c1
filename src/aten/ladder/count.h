// SPDX-License-Identifier: Apache-2.0
// What every call on a CPU rung is counted with.
#pragma once

#include <cstdint>

#include "aten/twin/entry.h"

namespace npu::ladder {

using twin::Entry;

// The clock when a call begins; 0 for one whose time is not taken.
std::uint64_t start_of_call(const Entry& entry);

// A call that began at `start` and has worked on so many bytes.
void count_call(
    Entry& entry,
    npu_reason reason,
    int rung,
    std::uint64_t bytes,
    std::uint64_t start);

}  // namespace npu::ladder
