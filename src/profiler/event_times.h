// SPDX-License-Identifier: Apache-2.0
// When queued work ran, by an event of the driver before and one after it.
//
// The contract's events give times between two of them only. An anchor, an
// event whose time on the host is known, turns them into times; it is taken on
// a stream of our own, so that no error of the user's work is reported here
// instead of to the user. A second one at the end shows how far the two clocks
// drifted apart.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "profiler/record.h"
#include "runtime/device.h"

namespace npu::profiler {

class EventTimes {
 public:
  // For devices that are open; others get their anchor with their first work.
  void start();
  // Before and after the driver gets the work of `record`. When the driver
  // cannot, the record is kLost.
  void before(Record& record);
  void after(Record& record);
  // Fills the times when the work is done; true when there is no more to do.
  bool resolve(Record& record);
  // Waits for the work of all of them and fills their times.
  void finish(std::vector<Record>& records);

 private:
  struct Anchor {
    npu_stream stream = nullptr;
    npu_event first = nullptr;
    std::int64_t first_ns = 0;  // 0: none
    double drift = 1;           // host time per device time
  };

  bool has_anchor(c10::DeviceIndex device);
  bool take_anchor(c10::DeviceIndex device);
  void measure_drift(c10::DeviceIndex device);
  npu_event take_event(c10::DeviceIndex device);
  void give_back(c10::DeviceIndex device, npu_event event);
  bool read(Record& record);
  void to_host_time(Record& record) const;

  std::mutex mutex_;
  std::array<Anchor, kMaxDevices> anchors_;
  std::array<std::vector<npu_event>, kMaxDevices> free_;
};

}  // namespace npu::profiler
