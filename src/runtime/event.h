// SPDX-License-Identifier: Apache-2.0
// A point in a stream that others wait for, and times between two of them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "npu/driver.h"

namespace npu {

// Owns a driver event, made on the device of the stream it first records.
// Before that it counts as done: query() is true, waits are no waits.
class Event {
 public:
  // NPU_EVENT_TIMING, NPU_EVENT_BLOCKING.
  explicit Event(std::uint32_t flags = 0) noexcept : flags_(flags) {}
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Throws where `stream` is not of the device that an event belongs to.
  static void check_owner(c10::DeviceIndex owner, c10::Stream stream);

  void record(c10::Stream stream);
  // Later work of `stream` waits; the host does not.
  void block(c10::Stream stream) const;
  bool query() const;
  void synchronize() const;
  // Throws unless both have TIMING, are recorded and done.
  double elapsed_ms(const Event& end) const;

  bool is_recorded() const noexcept {
    return handle_ != nullptr;
  }
  // -1 before the first record.
  c10::DeviceIndex device() const noexcept {
    return device_;
  }
  std::uint32_t flags() const noexcept {
    return flags_;
  }
  // The vendor SDK's own event; nullptr before the first record.
  void* native_handle() const;

 private:
  void create(c10::DeviceIndex device);

  npu_event handle_ = nullptr;
  c10::DeviceIndex device_ = -1;
  std::uint32_t flags_ = 0;
};

}  // namespace npu
