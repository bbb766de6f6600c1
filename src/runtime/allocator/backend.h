// SPDX-License-Identifier: Apache-2.0
// What the allocator needs from below: raw memory, and events on streams.
#pragma once

#include <cstddef>
#include <cstdint>

#include "npu/driver.h"

namespace npu::memory {

// PyTorch's id of a stream; 0 is the default stream.
using StreamId = std::int64_t;

struct StreamKey {
  int device;
  StreamId id;
  bool operator==(const StreamKey&) const = default;
};

// Where segments come from instead of the driver: a user's own functions.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual npu_status alloc(StreamKey stream, std::size_t bytes, void** out) = 0;
  virtual npu_status free(StreamKey stream, void* ptr, std::size_t bytes) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // NPU_E_OUT_OF_MEMORY makes the allocator free its caches and try again.
  virtual npu_status alloc(int device, std::size_t bytes, void** out) = 0;
  virtual npu_status free(int device, void* ptr) = 0;
  virtual npu_status synchronize(int device) = 0;
  virtual npu_status memory_info(
      int device, std::uint64_t* free, std::uint64_t* total) = 0;

  // Memory the driver keeps for itself and can make again.
  virtual void trim(int device) noexcept = 0;

  // Whether memory can be let go while it stays allocated (memory.discard).
  virtual bool discards() const noexcept = 0;
  // Contents of a free block that its stream no longer needs. NPU_NOT_READY:
  // the stream is busy, nothing was done.
  virtual npu_status discard(
      StreamKey stream, void* ptr, std::size_t bytes) = 0;

  // An event that is done when what is queued on `stream` is.
  virtual npu_status record(StreamKey stream, npu_event* out) = 0;
  virtual npu_status query(npu_event event) = 0;
  virtual npu_status synchronize(npu_event event) = 0;
  virtual void release(StreamKey stream, npu_event event) noexcept = 0;

  // Throws what the user sees for a failed call; uses this thread's last error.
  [[noreturn]] virtual void fail(npu_status status, const char* what) = 0;
};

}  // namespace npu::memory
