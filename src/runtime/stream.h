// SPDX-License-Identifier: Apache-2.0
// Streams: pools per device and priority, the current one per thread.
//
// A c10::Stream is (device, id). Id 0 is the device's default stream; pool
// streams have id = (pool << 5) | position, pool 3 for normal and 4 for high
// priority, as torch_npu numbers them.
#pragma once

#include <c10/core/Stream.h>

#include <optional>

#include "npu/driver.h"

namespace npu {

c10::Stream default_stream(c10::DeviceIndex device = -1);
c10::Stream current_stream(c10::DeviceIndex device = -1);
void set_current_stream(c10::Stream stream);
// priority < 0 is high; streams are handed out round robin.
c10::Stream stream_from_pool(int priority, c10::DeviceIndex device = -1);
int stream_priority(c10::Stream stream);
// Throws for an id that is no stream.
c10::Stream stream_from_id(c10::StreamId id, c10::DeviceIndex device = -1);

// The driver's handle; the stream is created at its first use. Throws for an
// id that is no stream.
npu_stream stream_handle(c10::Stream stream);
npu_stream current_stream_handle(c10::DeviceIndex device);
// The stream with this handle, of any device; none for a handle of others.
std::optional<c10::Stream> find_stream(npu_stream handle) noexcept;
// Of a device that is known to be there.
c10::StreamId current_stream_id(c10::DeviceIndex device) noexcept;

// The vendor SDK's own stream.
void* stream_native_handle(c10::Stream stream);

void synchronize_stream(c10::Stream stream);
bool query_stream(c10::Stream stream);

}  // namespace npu
