// SPDX-License-Identifier: Apache-2.0
// Work given to the active driver, on the current stream of a device, and shown
// to this thread's recorder. Reads for host code (item(), the CPU rungs) and
// copies between devices go to the driver directly: no recording could hold
// them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "aten/core/recorder.h"
#include "driver/call.h"

namespace npu {

// The driver's answer; nothing was queued unless it is NPU_OK.
npu_status queue_frame(Call& call, c10::DeviceIndex device);
// The same for a frame that is filled and inside the driver's capabilities.
npu_status queue_frame(const npu_call& frame, c10::DeviceIndex device);

// Throw with `what` when the driver fails.
void queue_copy(
    ByteWork::Kind kind,
    void* to,
    const void* from,
    std::uint64_t bytes,
    c10::DeviceIndex device,
    const char* what);
void queue_zeros(
    void* to, std::uint64_t bytes, c10::DeviceIndex device, const char* what);

}  // namespace npu
