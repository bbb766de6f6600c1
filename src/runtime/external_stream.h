// SPDX-License-Identifier: Apache-2.0
// Streams with ids of their own kind: sync launch (pool 5), those a program
// makes itself and knows by the driver's handle (pool 6), and those of threads
// of the plugin's own, which no program is given (pool 7).
#pragma once

#include <c10/core/Stream.h>

#include <optional>

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
// For copies of the plugin's own threads: a stream of the program's may be
// waiting for just such a thread.
c10::Stream copy_stream(c10::DeviceIndex device = -1);
// For work that may have to wait for other processes; no other caller gets it
// until it is taken back. None when all 31 are lent.
std::optional<c10::Stream> lend_stream(c10::DeviceIndex device = -1);
void take_back_stream(c10::Stream stream) noexcept;

// False for an external stream that was destroyed.
bool stream_exists(c10::Stream stream) noexcept;

}  // namespace npu
