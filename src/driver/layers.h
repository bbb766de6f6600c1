// SPDX-License-Identifier: Apache-2.0
// The layers a driver keeps for good; Note [Layers of a driver] in slots.h.
#pragma once

#include "driver/slots.h"

namespace npu {

class Driver;

// Calls `run` while holding the stream's lock.
using LockedRun = npu_status (*)(
    npu_stream stream,
    npu_status (*run)(npu_stream, const npu_call*),
    const npu_call* call);

// Adds to `tables`, as the driver gave them:
// - one call at a time per stream, when a device sets needs_stream_lock;
// - op.prepare before the first run of a kind that is not planned, when the
//   driver has it (`prepares`).
// Returns the function that holds a stream's lock around a pack's row; nullptr
// when no lock is needed. Throws Error when too many drivers need layers.
LockedRun add_needed_layers(
    const Driver& driver, DriverTables& tables, bool prepares);

}  // namespace npu
