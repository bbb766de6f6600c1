// SPDX-License-Identifier: Apache-2.0
// Tells one listener which device memory is written by work that is given to a
// driver. The driver's tables are the only way there, so wrapping their slots
// misses no caller.
#pragma once

#include <cstdint>

#include "npu/op.h"

namespace npu {

// Called from any thread, after the driver has taken the work: who reads after
// that call returned finds the write reported.
class WriteListener {
 public:
  virtual ~WriteListener() = default;
  virtual void on_write(
      npu_stream stream, const void* ptr, std::uint64_t bytes) noexcept = 0;
  // Before the driver destroys the stream.
  virtual void on_stream_end(npu_stream stream) noexcept = 0;
  // Once: from now on memory may be written that nobody reports.
  virtual void on_distrust(const char* why) noexcept = 0;
};

// Never taken back; later calls replace the first.
void set_write_listener(WriteListener* listener) noexcept;

// When host code cannot read the memory of a device, and addresses tell devices
// apart, replaces every slot that writes device memory by one that reports it.
void watch_writes_if_needed(
    const npu_device_table& device,
    npu_memory_table& memory,
    npu_stream_table& stream,
    npu_op_table& op);

// Whether this is the table of a driver that is watched.
bool writes_are_watched(const npu_memory_table& memory) noexcept;

// Says that somebody may write device memory past the tables: who has a
// stream's native handle, an interface of the driver that writes. For good.
void distrust_write_watch(const char* why) noexcept;
bool write_watch_distrusted() noexcept;

// Reports what a frame writes: outputs, lists that are not only read,
// workspaces. Of a kind that is not the contract's all operands count.
void report_frame(npu_stream stream, const npu_call& call) noexcept;

}  // namespace npu
