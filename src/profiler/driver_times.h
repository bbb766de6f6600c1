// SPDX-License-Identifier: Apache-2.0
// When queued work ran, as the driver itself recorded it: profiler/1.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "npu/profiler.h"
#include "profiler/record.h"
#include "runtime/device.h"

namespace npu::profiler {

class DriverTimes {
 public:
  // False when the driver has no such interface, or one that does not start on
  // a device that is open.
  bool start();
  // Before the first work of a device that was opened meanwhile. False when
  // its records will not come.
  bool covers(c10::DeviceIndex device);
  // Takes the driver's records and fills those of ours that wait for them.
  // Returns how many the driver lost.
  std::uint64_t finish(std::vector<Record>& records);

 private:
  struct Clock {
    bool started = false;
    std::int64_t device_ns = 0;
    std::int64_t host_ns = 0;  // since the epoch
  };

  bool start_device(c10::DeviceIndex device);
  bool read_clock(c10::DeviceIndex device, Clock& clock) const;

  const npu_profiler* driver_ = nullptr;
  std::mutex mutex_;
  std::array<Clock, kMaxDevices> clocks_;
};

}  // namespace npu::profiler
