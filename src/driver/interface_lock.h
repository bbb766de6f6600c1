// SPDX-License-Identifier: Apache-2.0
// The stream lock of optional interfaces; needs_stream_lock in npu/driver.h.
#pragma once

#include <string_view>

namespace npu {

class Driver;

// Functions of `table` (an npu_capture or npu_comm_table, by the interface's
// name) that take a stream hold its lock from now on, where the driver needs
// locks. What a group of communicators queues at its end is not locked: it goes
// to the communicators' own streams.
void lock_interface(
    const Driver& driver, std::string_view name, void* table) noexcept;

}  // namespace npu
