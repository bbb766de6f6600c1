// SPDX-License-Identifier: Apache-2.0
// Streams with ids of their own kind: sync launch (pool 5) and those a program
// makes itself and knows by the driver's handle (pool 6).
#pragma once

#include <c10/core/Stream.h>

#include "npu/driver.h"

namespace npu {

// One of four, handed out round robin.
c10::Stream sync_launch_stream(c10::DeviceIndex device = -1);

// Destroying a stream waits for its work; false for a handle that is none. The
// id is -1 then.
npu_stream create_external_stream(c10::DeviceIndex device = -1);
bool destroy_external_stream(npu_stream stream);
c10::StreamId external_stream_id(
    npu_stream stream, c10::DeviceIndex device = -1);
// False for an external stream that was destroyed.
bool stream_exists(c10::Stream stream) noexcept;

}  // namespace npu
