// SPDX-License-Identifier: Apache-2.0
// Serialises calls per stream for drivers that ask for it.
#pragma once

#include "npu/driver.h"

namespace npu {

// Calls `run` while holding the stream's lock.
using LockedRun = npu_status (*)(
    npu_stream stream,
    npu_status (*run)(npu_stream, const npu_call*),
    const npu_call* call);

// When a device sets needs_stream_lock, replaces every slot that takes a stream
// by one that holds that stream's lock around the driver's own, and returns
// what does the same for the rows of packs; nullptr when no lock is needed.
LockedRun lock_streams_if_needed(
    const npu_device_table& device,
    npu_memory_table& memory,
    npu_stream_table& stream,
    npu_event_table& event,
    npu_op_table& op);

}  // namespace npu
